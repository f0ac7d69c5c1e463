"""Comparisons from Python are those of the command."""

from __future__ import annotations

import csv
import inspect
import sys
from io import StringIO

import pytest
from support.commands import run as command
from support.committed import ORIGIN
from support.factories import make_case, make_result

from bt_bench.api.comparing import Comparison, compare
from bt_bench.api.reading import load
from bt_bench.api.sweeping import sweep
from bt_bench.base.errors import BtBenchError, ExitCode, UsageError
from bt_bench.cli import compare as compare_command
from bt_bench.cli import sweep as sweep_command
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.writing import write_result


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(ORIGIN)


OPTIONS = {
    "compare": {"metrics": "metric", "select": "k", "floors": "floor"},
    "sweep": {"select": "k", "overrides": "set"},
}
# What prints, saves or continues, and has no use in Python or another name there.
COMMAND_ALONE = {
    "compare": {
        *("results", "formats", "as_json", "only_changed", "show_all", "sort", "explain"),
        *("baseline", "save", "reports", "redact"),
    },
    "sweep": {
        *("ctx", "config", "resume", "profile", "dry_run", "dump_config", "traceback", "as_json"),
        *("shard", "balance", "cluster"),
    },
}


@pytest.mark.parametrize(
    ("function", "of_command"),
    [(compare, compare_command.compare), (sweep, sweep_command.sweep)],
)
def test_options_are_those_of_the_command(function, of_command):
    name = function.__name__
    mine = set(inspect.signature(function).parameters) - {"results", "progress"}
    theirs = set(inspect.signature(of_command).parameters) - COMMAND_ALONE[name]
    renamed = {OPTIONS[name].get(each, each) for each in theirs}
    assert mine - {"config"} == renamed - {"config"}


@pytest.mark.parametrize(
    "options",
    [
        {"k": ["small*"], "operations": "step", "variants": ["fused"], "all_metrics": True},
        {
            **{"metric": "host_us+stage_us", "threshold": 30.0, "alpha": 0.1},
            **{"correction": "bh", "fail_on": "faster"},
        },
        {"config": "origin", "floor": {"host_us*": 5.0}, "fail_on": ["none"]},
    ],
)
def test_verdicts_and_exit_code_are_those_of_the_command(options):
    words = []
    for name, value in options.items():
        flag = "-k" if name == "k" else f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif isinstance(value, dict):
            words += [word for item in value.items() for word in (flag, "{}={}".format(*item))]
        else:
            words += [flag, value if isinstance(value, str | float) else ",".join(value)]
    outcome = command("compare", ORIGIN, *words, "--format", "csv")
    found = compare(ORIGIN, **options)
    assert found.render("csv") == outcome.out.replace("\n", "\r\n").replace("\r\r", "\r")
    assert found.exit_code == outcome.code
    assert found.passed is (outcome.code == 0)


def test_it_prints_itself_as_the_command_does(comparison):
    assert f"{comparison}\n" == f"{comparison!r}\n" == command("compare", ORIGIN).out
    in_notebook = comparison._repr_markdown_()
    assert in_notebook.startswith("# fused, one_launch against baseline: origin")
    assert "\n| FASTER " in in_notebook


def test_a_run_is_a_path(comparison):
    assert compare(load(ORIGIN)).judged == comparison.judged
    one, two = (ORIGIN / f"{name}.json.xz" for name in ("baseline", "fused"))
    labelled = compare(f"old={one}", f"new={two}")
    assert (labelled.base, labelled.others) == ("old", ("new",))


def test_too_little_is_told_and_does_not_pass(comparison, tmp_path):
    assert comparison.not_compared == ()
    for variant, case in (("baseline", "small"), ("fused", "large")):
        write_result(RunFolder(tmp_path), make_result(variant, [make_case(case)]))
    found = compare(tmp_path, fail_on="none")
    outcome = command("compare", tmp_path, "--fail-on", "none")
    assert found.exit_code == outcome.code == ExitCode.NOT_COMPARABLE
    (line,) = found.not_compared
    assert line.startswith("nothing of fused could be compared: ")
    assert outcome.err == f"bt-bench: error: {line}\n"
    assert str(found) == f"{outcome.out}{line}"
    assert line[:40] in found._repr_markdown_()


def test_a_table_has_the_columns_and_rows_of_csv(comparison):
    frame = comparison.to_pandas()
    heading, *rows = csv.reader(StringIO(comparison.render("csv")))
    assert [*frame.columns, "warnings"] == heading
    assert len(frame) == len(rows) == len(comparison.verdicts)
    assert type(frame["verdict"].iloc[0]) is str
    assert frame["ratio"].tolist() == pytest.approx(
        [float("nan") if each.ratio is None else each.ratio for each in comparison.verdicts],
        nan_ok=True,
    )


def test_without_pandas_it_names_the_extra(comparison, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    for found in (comparison, load(ORIGIN / "fused.json.xz")):
        with pytest.raises(UsageError, match=r"to_pandas needs pandas.*'bt-bench\[pandas\]'"):
            found.to_pandas()


@pytest.mark.parametrize(
    ("results", "options", "message"),
    [
        ((), {}, "got no result; expected runs"),
        (("nope",), {}, "nope does not exist"),
        ((ORIGIN / "fused.json.xz",), {}, "holds one result; expected two or more"),
        ((ORIGIN,), {"threshold": -1}, "--threshold -1: expected percent"),
        ((ORIGIN,), {"floor": {"launches": -1}}, "--floor launches=-1: expected METRIC=AMOUNT"),
        ((ORIGIN,), {"fail_on": ["slowr"]}, "unknown verdict 'slowr'; did you mean 'slower'"),
        ((ORIGIN,), {"correction": "hom"}, "--correction hom: unknown; did you mean 'holm'"),
        ((ORIGIN,), {"variants": []}, "--variants names none; expected one or more"),
    ],
)
def test_wrong_options_are_refused(results, options, message):
    with pytest.raises(UsageError, match=message) as caught:
        compare(*results, **options)
    assert caught.value.exit_code is ExitCode.USAGE
    assert isinstance(caught.value, BtBenchError)


def test_an_unknown_format_is_refused(comparison):
    with pytest.raises(UsageError, match="no format 'mdd'; did you mean 'md'"):
        comparison.render("mdd")
