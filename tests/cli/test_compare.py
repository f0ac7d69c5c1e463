"""`compare` from arguments to reports and exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import Outcome, run, run_apart
from support.factories import (
    make_calibration,
    make_case,
    make_crash,
    make_environment,
    make_failed_case,
    make_launches,
    make_measurement,
    make_result,
    make_rounds,
)

from bt_bench.api import comparing
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.reading import read_result
from bt_bench.results.files.writing import ResultWriter, write_result
from bt_bench.results.run.case import CaseResult, CompiledKernel, ControlSpread
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.plan import Plan
from bt_bench.results.run.series import series_of

Write = Callable[..., Path]
Sides = tuple[Path, Path]

FORMATS = ("table", "md", "json", "csv", "junit", "html-fragment", "github")


def timed(value: float, name: str = "small", seed: int = 0, **fields: Any) -> CaseResult:
    noise = np.exp(0.002 * np.random.default_rng(seed).standard_normal(48))
    samples = [[float(sample)] for sample in value * noise]
    return make_case(name, samples={Quantity.HOST_US: samples}, **fields)


def staged(value: float, name: str = "small", seed: int = 0, *, stage: float = 9.0) -> CaseResult:
    """The same with staging beside it, by which two runs know how fast the host was."""
    samples = {
        quantity: timed(us, seed=seed + place).measurements[0].samples
        for place, (quantity, us) in enumerate(
            ((Quantity.HOST_US, value), (Quantity.STAGE_US, stage))
        )
    }
    return make_case(name, samples=samples)


def kernel(registers: int) -> CompiledKernel:
    return CompiledKernel(name="k", hashes=["a"], registers=[registers], spills=[0])


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a result of these cases into a run folder, and gives its path."""

    def write_into(folder: str, variant: str, cases: Sequence[CaseResult], **fields: Any) -> Path:
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        fields = {"run_id": folder} | fields
        return write_result(RunFolder(path), make_result(variant, cases, **fields))

    return write_into


@pytest.fixture
def sides(write: Write) -> Sides:
    """Two variants of one run; of its cases one is slower, one faster and one the same."""
    names = ("slow", "quick", "same")
    base = [timed(50.0, name, seed) for seed, name in enumerate(names)]
    other = [timed(50.0 * f, n, 9) for n, f in zip(names, (1.2, 0.8, 1.0), strict=True)]
    return write("run", "baseline", base), write("run", "fused", other)


def run_of(write: Write) -> Path:
    """The folder of a run of two variants that are equally fast."""
    for seed, variant in enumerate(("baseline", "fused")):
        folder = write("run", variant, [timed(50.0, seed=seed)]).parent
    return folder


def refused(outcome: Outcome, code: int, *texts: str) -> None:
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    for text in texts:
        assert text in outcome.err


def verdicts(outcome: Outcome) -> dict[str, str]:
    judgements = json.loads(outcome.out)["judgements"]
    return {each["case"]: each["verdict"] for each in judgements}


def test_verdicts_and_exit_code(sides: Sides) -> None:
    outcome = run("compare", *sides, "--json")
    assert outcome.code == 1
    assert verdicts(outcome) == {"slow": "SLOWER", "quick": "FASTER", "same": "SAME"}
    assert outcome.err == ""
    assert "SLOWER" in run("compare", *sides).out


@pytest.mark.parametrize(
    ("option", "code"),
    [("slower", 1), ("none", 0), ("missing,invalid", 0), ("faster", 1), ("inconclusive", 0)],
)
def test_what_fails(sides: Sides, option: str, code: int) -> None:
    assert run("compare", *sides, "--fail-on", option).code == code


def test_an_improvement_does_not_fail(sides: Sides) -> None:
    assert run("compare", *sides, "--threshold", "25", "--fail-on", "slower,faster").code == 0
    assert run("compare", *reversed(sides), "--metric", "host_us").code == 1


def test_the_first_is_the_base(sides: Sides) -> None:
    assert run("compare", *reversed(sides), "--json").json()["base"] == "fused"
    assert run("compare", sides[0].parent, "--json").json()["base"] == "baseline"


@pytest.mark.parametrize("name", FORMATS)
def test_formats_to_stdout_and_to_files(sides: Sides, tmp_path: Path, name: str) -> None:
    whole = ("--all",) if name == "table" else ()  # a file has everything
    on_stdout = run("compare", *sides, "--format", name, *whole)
    assert on_stdout.code == 1
    path = tmp_path / "new" / "report"
    to_file = run("compare", *sides, "--format", f"{name}={path}")
    assert to_file.code == 1
    assert path.read_text() == on_stdout.out
    assert to_file.out == ""
    counts = "1 SLOWER, 1 FASTER, 1 SAME"
    assert to_file.err == f"bt-bench: verdicts: {counts}; written to {path}\n"


def test_formats_can_be_read_by_others(sides: Sides) -> None:
    rows = list(csv.DictReader(io.StringIO(run("compare", *sides, "--format", "csv").out)))
    assert [row["verdict"] for row in rows] == ["SLOWER", "FASTER", "SAME"]
    suites = ElementTree.fromstring(run("compare", *sides, "--format", "junit").out)
    assert len(suites.findall(".//failure")) == 1


def test_a_format_that_cannot_be_written_keeps_no_other_from_it(
    sides: Sides, tmp_path: Path
) -> None:
    long, good = tmp_path / ("a" * 300), tmp_path / "good.xml"
    outcome = run("compare", *sides, "--format", f"md={long}", "--format", f"junit={good}")
    assert outcome.code == 2
    assert f"cannot write {long}: File name too long" in outcome.err
    assert good.read_text().startswith("<?xml")


def test_two_formats_on_stdout(sides: Sides) -> None:
    refused(run("compare", *sides, "--format", "md", "--json"), 2, "would both go to stdout")


def test_github(sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    outcome = run("compare", *sides, "--format", "github")
    assert outcome.out.startswith("::error title=SLOWER gather_slots/slow")
    assert summary.read_text().startswith("before\n")
    assert "SLOWER" in summary.read_text()


@pytest.mark.parametrize("room", [0, 700])
def test_github_takes_so_much_of_all_commands_of_a_step(
    sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Of a summary that is too large, GitHub drops everything."""
    summary = tmp_path / "summary.md"
    summary.write_text("x" * ((1 << 20) - room))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    outcome = run("compare", *sides, "--format", "github")
    assert summary.stat().st_size <= 1 << 20
    assert ("SLOWER" in summary.read_text()) == (room > 0)
    assert ("as large as GitHub takes" in outcome.err) == (room == 0)


def test_only_changed_and_sort(sides: Sides) -> None:
    def cases(*options: str) -> list[str]:
        return [
            each["case"] for each in run("compare", *sides, "--json", *options).json()["judgements"]
        ]

    assert cases() == ["slow", "quick", "same"]
    assert cases("--only-changed") == ["slow", "quick"]
    assert cases("--sort", "name") == ["quick", "same", "slow"]
    assert cases("--sort", "change") == ["slow", "same", "quick"]
    assert cases("--sort", "verdict")[0] == "slow"
    # What is not shown counts all the same.
    assert run("compare", *reversed(sides), "--only-changed").code == 1


def test_a_terminal_gets_its_width_and_colours(sides: Sides) -> None:
    """As `rich` takes it, FORCE_COLOR makes a terminal of any stream."""
    terminal = {"FORCE_COLOR": "1", "NO_COLOR": "", "TERM": "xterm", "COLUMNS": "60"}
    outcome = run_apart("compare", *sides, environment=terminal, forked=True)
    assert outcome.code == 1
    assert "\x1b[31mSLOWER\x1b[0m" in outcome.out
    assert "\x1b[32mFASTER\x1b[0m" in outcome.out
    lines = re.sub(r"\x1b\[\d*m", "", outcome.out).splitlines()
    assert 50 < max(map(len, lines)) <= 60
    words = ("compare", *sides, "--explain", "slow")
    explained = run_apart(*words, environment=terminal, forked=True)
    assert max(map(len, re.sub(r"\x1b\[\d*m", "", explained.out).splitlines())) <= 60
    environment = {"COLUMNS": "60", "TERM": "xterm"}
    piped = run_apart("compare", *sides, environment=environment, forked=True)
    assert "\x1b" not in piped.out
    assert max(map(len, piped.out.splitlines())) > 60


def test_explain(sides: Sides, tmp_path: Path) -> None:
    outcome = run("compare", *sides, "--explain", "slow")
    assert outcome.code == 1
    assert "host_us" in outcome.out
    assert "margin" in outcome.out
    assert "quick" not in outcome.out
    refused(run("compare", *sides, "--explain", "slo"), 2, "no such case")
    refused(run("compare", *sides, "--explain", "slow", "--json"), 2, "prints to stdout itself")
    path = tmp_path / "junit.xml"
    run("compare", *sides, "--explain", "slow", "--format", f"junit={path}")
    assert path.is_file()


def test_metrics(sides: Sides) -> None:
    assert verdicts(run("compare", *sides, "--json", "--metric", "host*"))["slow"] == "SLOWER"
    refused(run("compare", *sides, "--metric", "gpu_us"), 2, "--metric gpu_us: no such metric")


def test_selected_cases_keep_their_verdicts_and_alone_count(sides: Sides) -> None:
    whole = run("compare", *sides, "--json").json()["judgements"]
    outcome = run("compare", *sides, "--json", "-k", "qu*,same")
    assert outcome.code == 0
    assert outcome.json()["judgements"] == [each for each in whole if each["case"] != "slow"]
    (scope,) = outcome.json()["scope"]
    assert scope.startswith("Selected by -k qu*,same: 2 of 3 cases.")
    assert scope.endswith("nor for the exit code: 1 SLOWER.")
    for name in ("table", "md", "html-fragment"):
        assert "Selected by" in run("compare", *sides, "--format", name, "-k", "same").out
    assert run("compare", *sides, "-k", "slow", "-k", "same").code == 1
    assert run("compare", *sides, "--operations", "gather_slots").code == 1
    refused(
        run("compare", *sides, "-k", "solw"),
        2,
        "-k 'solw': no case matches; did you mean 'slow'? The cases are:",
    )
    message = "--operations: no operation 'gather_slot' in these results; did you mean"
    refused(run("compare", *sides, "--operations", "gather_slot"), 2, message)
    refused(run("compare", *sides, "--operations", ","), 2, "--operations names none")


def test_selected_variants(write: Write) -> None:
    for folder in ("a", "b"):
        base = write(folder, "baseline", [timed(50.0)])
        write(folder, "fused", [timed(50.0, seed=1)])
        write(folder, "slow", [timed(70.0, seed=2)])
    run_folder = base.parent
    assert run("compare", run_folder).code == 1
    outcome = run("compare", run_folder, "--variants", "fused", "--json")
    assert outcome.code == 0
    assert {each["other"] for each in outcome.json()["judgements"]} == {"fused"}
    assert outcome.json()["others"] == ["fused"]
    assert outcome.json()["scope"] == ["Left out by --variants, and not judged: slow."]
    assert run("compare", run_folder, "--variants", "slow").code == 1
    both = run("compare", run_folder, run_folder.parent / "a", "--variants", "fused", "--json")
    assert {each["other"] for each in both.json()["judgements"]} == {"fused@a"}
    message = "--variants: no variant 'fusd' in these results; did you mean 'fused'?"
    refused(run("compare", run_folder, "--variants", "fusd"), 2, message)
    message = "--variants baseline: only the base is left; expected one or more of fused, slow"
    refused(run("compare", run_folder, "--variants", "baseline"), 2, message)


def test_a_selection_is_not_stored_as_a_whole(write: Write, reports: Path) -> None:
    path = write("a", "fused", [timed(50.0)])
    outcome = run("compare", path, "--save-baseline", "main", "-k", "small")
    refused(outcome, 2, "stores a whole result", "leave out -k small")
    assert not reports.exists()


def test_counts_are_more_or_fewer(write: Write) -> None:
    one, two = (make_case(compiled=[kernel(24)]), make_case(compiled=[kernel(32)]))
    base, other = write("a", "baseline", [one]), write("a", "fused", [two])
    outcome = run("compare", base, other)
    assert outcome.code == 1
    assert "Verdicts: 1 MORE, 2 SAME." in outcome.out
    assert "MORE     gather_slots/small  registers" in outcome.out
    assert "SLOWER" not in outcome.out
    assert "Verdicts: 1 FEWER, 2 SAME." in run("compare", other, base).out
    by_metric = {
        each["metric"]: each for each in run("compare", base, other, "--json").json()["judgements"]
    }
    assert by_metric["registers"]["verdict"] == "SLOWER"


def test_floors(write: Write) -> None:
    base = write("a", "baseline", [make_case(compiled=[kernel(24)])])
    other = write("a", "fused", [make_case(compiled=[kernel(32)])])
    outcome = run("compare", base, other, "--floor", "registers=8", "--all")
    assert outcome.code == 0
    assert "k 24 → 32, within the floor of 8" in outcome.out
    assert "The floor of registers is 8 registers: a smaller change counts as none." in outcome.out
    assert run("compare", base, other, "--floor", "registers=7.5").code == 1
    assert run("compare", base, other, "--floor", "*=8", "--floor", "registers=0").code == 1
    wrong = "--floor register: no such metric in this comparison; did you mean 'registers'?"
    refused(run("compare", base, other, "--floor", "register=8"), 2, wrong)
    for text in ("registers", "registers=-1", "registers=inf", "=8", "registers=x"):
        refused(run("compare", base, other, "--floor", text), 2, f"--floor {text}: expected METRIC")


def test_floors_of_times(sides: Sides) -> None:
    outcome = run("compare", *sides, "--floor", "host_us=15", "--json")
    assert outcome.code == 0
    assert set(verdicts(outcome).values()) == {"SAME"}


def test_a_table_lists_what_changed_and_all_on_request(sides: Sides) -> None:
    short, whole = run("compare", *sides), run("compare", *sides, "--all")
    assert "gather_slots/same" not in short.out
    assert (
        "Not listed: 1 SAME. All verdicts, and the rules behind them: --all, or --format md."
        in short.out
    )
    assert "gather_slots/same" in whole.out
    assert "Not listed" not in whole.out
    assert (short.code, whole.code) == (1, 1)
    assert "1 SLOWER, 1 FASTER, 1 SAME" in short.out
    summary = whole.out.index("1 SLOWER, 1 FASTER, 1 SAME", whole.out.index("By metric"))
    assert summary < whole.out.index("By case") < whole.out.index("How it was compared")
    assert "How it was compared" not in short.out


def test_margins_by_flag_and_config(sides: Sides, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "gate: {margin_percent: 1}\ncases:\n"
        "  - {name: slow, requests: 2, tokens: 4, margin_percent: 30}\n"
    )

    def margins(*options: object) -> dict[str, float]:
        judgements = run("compare", *sides, "--json", *options).json()["judgements"]
        return {e["case"]: e["evidence"]["margin"]["configured"] for e in judgements}

    assert margins() == {"slow": 0.02, "quick": 0.02, "same": 0.02}
    assert margins("--threshold", 3)["slow"] == 0.03
    assert margins("--config", config) == {"slow": 0.3, "quick": 0.01, "same": 0.01}
    assert margins("--config", config, "--threshold", 4) == {
        "slow": 0.3,
        "quick": 0.04,
        "same": 0.04,
    }
    assert run("compare", *sides, "--config", config).code == 0
    config.write_text(config.read_text().replace("gate: {", "gate: {fail_on: [faster], "))
    assert run("compare", *sides, "--config", config).code == 1
    assert run("compare", *sides, "--config", config, "--fail-on", "none").code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--threshold", "-1"), "--threshold -1: expected percent"),
        (("--threshold", "nan"), "--threshold nan: expected percent"),
        (("--threshold", "1e308"), "--threshold 1e+308: expected percent, from 0 to 1000"),
        (("--alpha", "nan"), "alpha is nan; expected a probability"),
        (("--fail-on", "none,slower"), "none cannot be combined"),
        (("--alpha", "0"), "alpha is 0; expected a probability"),
        (("--alpha", "0.9"), "alpha is 0.9; expected a probability"),
        (("--correction", "hom"), "did you mean 'holm'?"),
        (("--sort", "nam"), "did you mean 'name'?"),
        (("--fail-on", "slow"), "did you mean 'slower'?"),
        (("--format", "xml"), "--format xml: unknown format"),
        (("--config", "none.yaml"), "none.yaml"),
        (("--baseline", "../x"), "cannot be a file name"),
        (("--save-baseline", "a/b"), "cannot be a file name"),
    ],
)
def test_wrong_options(sides: Sides, options: Sequence[str], message: str) -> None:
    refused(run("compare", *sides, *options), 2, message)


# What sides there are


def test_labels(write: Write) -> None:
    old, new = (write(name, "fused", [timed(50.0, seed=i)]) for i, name in enumerate(("a", "b")))
    assert run("compare", old, new, "--json").json()["others"] == ["fused (b)"]
    assert run("compare", f"old={old}", f"new={new}", "--json").json()["base"] == "old"
    same = run("compare", f"x={old}", f"x={new}", "--json").json()
    assert (same["base"], same["others"]) == ("x", ["x #2"])
    refused(run("compare", f"={old}", new), 2, "expected LABEL=PATH")


def test_a_file_with_an_equals_sign_in_its_name(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (write(name, "fused", [timed(50.0, seed=i)]) for i, name in enumerate(("a", "b")))
    monkeypatch.chdir(tmp_path)
    Path("a=b.json").write_bytes(old.read_bytes())
    assert run("compare", "a=b.json", new, "--json").json()["base"] == "fused (a)"


def test_run_folders_are_compared_variant_by_variant(write: Write) -> None:
    for seed, folder in enumerate(("before", "after")):
        for value, variant in ((50.0, "baseline"), (30.0, "fused")):
            path = write(folder, variant, [staged(value, seed=9 * seed)])
    write("before", "gone", [timed(9.0)])
    before, after = path.parent.parent / "before", path.parent
    outcome = run("compare", before, f"head={after}", "--json", "--metric", "host_us")
    assert outcome.code == 4
    assert (outcome.json()["base"], outcome.json()["others"]) == ("before", ["head"])
    found = [(e["base"], e["other"], e["verdict"]) for e in outcome.json()["judgements"]]
    assert found == [
        ("baseline@before", "baseline@head", "SAME"),
        ("fused@before", "fused@head", "SAME"),
        ("gone@before", "gone@head", "MISSING"),
    ]
    assert run("compare", before, after, "--allow-missing").code == 0


def test_results_of_different_runs_are_advisory(write: Write) -> None:
    old, new = write("a", "fused", [staged(50.0)]), write("b", "fused", [staged(52.0, seed=9)])
    outcome = run("compare", old, new, "--json")
    assert outcome.code == 0
    assert outcome.json()["judgements"][0]["advisory"] is True
    assert run("compare", old, new, "--threshold", "2").code == 1


def test_standard_input(sides: Sides) -> None:
    text = sides[1].read_text()
    assert run("compare", sides[0], "-", "--json", stdin=text).json()["others"] == ["fused"]
    refused(run("compare", "-", "-", stdin=text), 2, "expected it once")


# Baselines


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BT_BENCH_REPORTS", str(tmp_path / "reports"))
    return tmp_path / "reports"


def test_baselines(write: Write, reports: Path) -> None:
    old, new = write("a", "fused", [staged(50.0)]), write("b", "fused", [staged(80.0, seed=9)])
    refused(run("compare", new, "--baseline", "main"), 2, "there are no baselines yet")
    saved = run("compare", old, "--save-baseline", "main")
    assert (saved.code, saved.out) == (0, "")
    assert "saved" in saved.err
    assert (reports / "baselines" / "main.json").read_text() == old.read_text()
    refused(run("compare", new, "--baseline", "mian"), 2, "did you mean 'main'?")
    outcome = run("compare", new, "--baseline", "main", "--json")
    assert (outcome.code, outcome.json()["base"]) == (1, "main")


def test_a_regression_does_not_become_the_baseline(write: Write, reports: Path) -> None:
    old, new = write("a", "fused", [staged(50.0)]), write("b", "fused", [staged(80.0, seed=9)])
    run("compare", old, "--save-baseline", "main")
    both = ("--baseline", "main", "--save-baseline", "main")
    outcome = run("compare", new, *both)
    assert outcome.code == 1
    assert "main is not saved" in outcome.err
    assert (reports / "baselines" / "main.json").read_text() == old.read_text()
    assert run("compare", new, *both, "--fail-on", "none").code == 0
    assert (reports / "baselines" / "main.json").read_text() == new.read_text()


def test_what_cannot_be_a_baseline(write: Write, reports: Path) -> None:
    partial = write("a", "fused", [timed(50.0)], complete=False)
    refused(run("compare", partial, "--save-baseline", "main"), 2, "is a partial result")
    refused(run("compare", partial.parent, "--save-baseline", "main"), 2, "a run folder")
    refused(run("compare", "-", "--save-baseline", "main", stdin=""), 2, "cannot store stdin")
    device = run("compare", "/dev/zero", "--save-baseline", "main")
    refused(device, 2, "cannot store /dev/zero, which is not a regular file")
    assert not reports.exists()


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ([], "has no cases; expected a result with cases that are ok"),
        (
            [timed(50.0), make_failed_case("bad", message="slot 3")],
            "has case gather_slots/bad, whi",
        ),
        ([make_case("bare")], "has case gather_slots/bare, for which nothing was measured"),
    ],
)
def test_what_nothing_can_be_compared_with_is_no_baseline(
    write: Write, reports: Path, cases: Sequence[CaseResult], message: str
) -> None:
    path, other = write("a", "fused", cases), write("b", "fused", [timed(50.0, seed=1)])
    refused(run("compare", path, "--save-baseline", "main"), 2, f"{path} {message}")
    # Nor where it was compared with something, and nothing was to fail that.
    outcome = run("compare", path, other, "--save-baseline", "main", "--fail-on", "none")
    assert outcome.code in (2, 4)
    assert not reports.exists()


def test_what_is_stored_is_what_was_compared(
    write: Write, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = write("a", "fused", [timed(50.0)]), write("b", "fused", [timed(50.0, seed=1)])
    slow = write("c", "fused", [timed(90.0)]).read_text()
    match = comparing.match_sides

    def then_changed(*arguments: Any) -> Any:
        matched = match(*arguments)
        new.write_text(slow)
        return matched

    monkeypatch.setattr(comparing, "match_sides", then_changed)
    outcome = run("compare", new, old, "--save-baseline", "main")
    assert outcome.code == 2
    assert f"{new} has changed since it was read for this comparison" in outcome.err
    assert not reports.exists()


def test_a_stale_journal_changes_neither_verdicts_nor_what_is_stored(
    write: Write, reports: Path
) -> None:
    base, slow = (
        write("run", "baseline", [timed(50.0)]),
        write("run", "fused", [timed(80.0, seed=1)]),
    )
    text = slow.read_text()
    under_way = make_result("fused", run_id="run", complete=False)
    writer = ResultWriter(RunFolder(slow.parent), under_way)
    writer.add(timed(50.0, seed=1))
    slow.write_text(text)
    for name in FORMATS:
        outcome = run("compare", base, slow, "--format", name)
        assert outcome.code == 1
        assert "fused.cases.jsonl" in " ".join(outcome.out.split()), name
    outcome = run("compare", slow, base, "--save-baseline", "main")
    assert outcome.code == 0
    assert (reports / "baselines" / "main.json").read_text() == text


# Runs that are not whole


@pytest.mark.parametrize("name", FORMATS)
def test_partial_results_are_not_compared_unless_allowed(write: Write, name: str) -> None:
    whole, part, parts = (
        write(folder, variant, [timed(50.0, seed=seed)], complete=folder == "a")
        for seed, (folder, variant) in enumerate((("a", "fused"), ("b", "fused"), ("b", "other")))
    )
    (part.parent / "config.yaml").write_text("variants: [fused, other]\n")
    for sides in ((whole, part), (part, whole)):
        outcome = run("compare", *sides, "--format", name)
        finish = f"Finish it with `bt-bench sweep --resume {part.parent}`, or pass --allow-partial"
        refused(outcome, 4, "fused (b) is a partial result: ", finish)
    both = run("compare", part, parts, "--fail-on", "none", "--allow-missing")
    refused(both, 4, "error: fused and other are partial results: their run was interrupted")
    assert len(both.err.splitlines()) == 1
    allowed = run("compare", whole, part, "--allow-partial", "--format", name)
    assert allowed.code == 0
    assert "fused (b) is a partial result" in " ".join(allowed.out.split())


def test_what_a_partial_result_lacks_is_missing_all_the_same(write: Write) -> None:
    whole = write("a", "fused", [timed(50.0), timed(50.0, "more")])
    part = write("b", "fused", [timed(50.0, seed=1)], complete=False)
    assert run("compare", whole, part, "--allow-partial").code == 4
    assert run("compare", whole, part, "--allow-partial", "--allow-missing").code == 0


PLANNED = "name: x\ndescription: ''\nvariants: [baseline, fused,\n  lost]\ncases:\n- name: x\n"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("lost", ["baseline", "fused", "lost"])
def test_a_variant_that_the_runs_config_names_is_missed(write: Write, lost: str, name: str) -> None:
    for seed, variant in enumerate(("baseline", "fused", "lost")):
        path = write("run", variant, [timed(50.0, seed=seed), timed(9.0, "b", seed=seed)])
    folder = path.parent
    assert run("compare", folder).code == 0  # without a config nobody can say
    (folder / "config.yaml").write_text(PLANNED)
    assert run("compare", folder).code == 0
    (folder / f"{lost}.json").unlink()
    outcome = run("compare", folder, "--format", name)
    assert outcome.code == 4
    assert "MISSING" in outcome.out
    found = run("compare", folder, "--json").json()["judgements"]
    missing = [each for each in found if each["verdict"] == "MISSING"]
    assert [(each["case"], each["other"]) for each in missing] == [("small", lost), ("b", lost)]
    assert missing[0]["detail"] == (
        f"{folder} has no result of variant {lost}, which its config.yaml names"
    )
    assert run("compare", folder, "--allow-missing").code == 0


def test_two_runs_that_lost_the_same_variant(write: Write, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for seed, folder in enumerate(folders):
        for variant in ("baseline", "fused"):
            write(folder.name, variant, [timed(50.0, seed=seed)])
        (folder / "config.yaml").write_text(PLANNED)
    outcome = run("compare", *folders, "--json")
    assert outcome.code == 4
    (missing,) = [e for e in outcome.json()["judgements"] if e["verdict"] == "MISSING"]
    assert (missing["base"], missing["other"], missing["case"]) == ("lost@a", "lost@b", "small")
    assert run("compare", *folders, "--allow-missing").code == 0


def test_where_all_but_one_variant_is_lost_nothing_is_compared(write: Write) -> None:
    folder = write("run", "fused", [timed(50.0)]).parent
    (folder / "config.yaml").write_text("variants: [baseline, fused]\n")
    for options in ((), ("--allow-missing",), ("--fail-on", "none")):
        outcome = run("compare", folder, *options)
        assert outcome.code == 4
        assert "nothing of baseline could be compared" in outcome.err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name: x\n",
        "variants: 3\n",
        "variants: []\n",
        "variants: [baseline]\n",
        "variants: [1, a]\n",
        "variants: [a\n",
        "variants:\n",
    ],
)
def test_a_config_that_does_not_say_what_was_run(write: Write, text: str) -> None:
    folder = run_of(write)
    (folder / "config.yaml").write_text(text)
    refused(run("compare", folder), 2, str(folder / "config.yaml"))


@pytest.mark.parametrize(
    "text",
    [
        "variants:\n- baseline\n- fused\n- lost\n",
        "variants:\n  - baseline\n  # all\n\n  - fused\n  - lost\nplan: {}",
        "{variants: [baseline, fused, lost], cases: []}",
        '"variants": [baseline, fused, lost]\n',
        "variants: [baseline, fused, lost]",
        "variants:\n- baseline\n- fused\n# the last\n- lost\n",
        "name: x\nvariants: [baseline,\nfused,\nlost]\nplan: {}\n",
        "variants: [baseline, # a: b\nfused,\nlost\n]\n",
    ],
)
def test_any_config_says_it(write: Write, text: str) -> None:
    folder = run_of(write)
    (folder / "config.yaml").write_text(text)
    assert run("compare", folder, "--json").json()["counts"]["MISSING"] == 1


@pytest.mark.parametrize("plant", [os.mkfifo, lambda path: path.symlink_to("gone.yaml")])
def test_a_config_that_is_no_file(write: Write, plant: Callable[[Path], None]) -> None:
    folder = run_of(write)
    plant(folder / "config.yaml")
    refused(run("compare", folder), 2, str(folder / "config.yaml"))


@pytest.mark.parametrize("name", FORMATS)
def test_results_of_two_runs_in_one_folder(write: Write, name: str) -> None:
    for seed, variant in enumerate(("baseline", "fused", "other")):
        run_id = "later" if variant == "fused" else "run"
        path = write("run", variant, [timed(50.0, seed=seed)], run_id=run_id)
    outcome = run("compare", path.parent, "--format", name)
    assert outcome.code == 0
    shown = " ".join(outcome.out.replace("&#x27;", "'").split())
    assert "baseline.json, other.json of run 'run'; fused.json of run 'later'" in shown


# Bad input


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: text[:-200], "is not JSON: it seems truncated"),
        (
            lambda text: text.replace('"host_us"', '"hots_us"'),
            "$.cases[0].measurements[0].quantity",
        ),
        (lambda text: text.replace('"notes"', '"nodes"'), "extra inputs are not permitted"),
        (
            lambda text: text.replace('"unit":"us"', '"unit":"ms"'),
            "input should be 'us', got \"ms\"",
        ),
        (lambda text: text.replace('"samples":[[', '"samples":[[NaN],['), "finite number"),
        (lambda text: text.replace('"samples":[[', '"samples":[[-'), "greater than or equal to 0"),
        (lambda text: text.replace('"samples":[[', '"samples":[[1e999],['), "finite number"),
        (lambda text: text.replace('"samples":[[', '"samples":[[],['), "is damaged"),
    ],
)
def test_damaged_files(sides: Sides, spoil: Callable[[str], str], message: str) -> None:
    text = sides[1].read_text()
    sides[1].write_text(spoil(text))
    assert sides[1].read_text() != text
    outcome = run("compare", *sides)
    refused(outcome, 2, str(sides[1]), message)


@pytest.mark.parametrize("version", [1, 4])
def test_other_schema_versions(sides: Sides, version: int) -> None:
    text = sides[1].read_text()
    sides[1].write_text(text.replace('"schema_version": 3', f'"schema_version": {version}'))
    refused(
        run("compare", *sides),
        4,
        f"{sides[1]} has schema version {version}; expected 3",
    )


def test_other_devices_and_plans(write: Write) -> None:
    base = write("a", "fused", [timed(50.0)])
    device = write("b", "fused", [timed(50.0, seed=1)], environment=make_environment(triton="3.5"))
    plan = write("c", "fused", [timed(50.0, seed=1)], plan=Plan(rounds=9, warmup_rounds=1))
    refused(run("compare", base, device), 4, "Triton 3.6.0 against 3.5")
    refused(run("compare", base, plan), 4, "plan.rounds 3 against 9")
    assert run("compare", base, device, "--ignore-device").code == 0
    assert run("compare", base, plan, "--ignore-plan").code == 0


def test_a_crash_that_did_not_come_back_is_a_warning(write: Write) -> None:
    base = write("run", "baseline", [timed(50.0)])
    crashes = [make_crash(), make_crash("step/other")]
    other = write("run", "fused", [timed(50.0, seed=9)], crashes=crashes)
    outcome = run("compare", base, other, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json()["warnings"] == [
        "fused: step/small: while measured: the worker was ended by SIGSEGV; it did not happen "
        "again when that was repeated (and 1 more such crashes)"
    ]
    assert "SIGSEGV" in run("compare", base, other).out
    # Of a file that was written before there was such a list there is nothing to say.
    text = json.loads(other.read_text())
    del text["crashes"]
    other.write_text(json.dumps(text))
    assert run("compare", base, other, "--json").json()["warnings"] == []
    assert read_result(other).crashes == []


def test_one_result_twice(sides: Sides, tmp_path: Path) -> None:
    refused(
        run("compare", sides[0], sides[0]),
        2,
        "are the same result: variant 'baseline' of run",
    )
    copy = tmp_path / "copy.json"
    copy.write_bytes(sides[0].read_bytes())
    refused(run("compare", sides[0], f"copy={copy}"), 2, "copy are the same result")


def test_nothing_in_common(write: Write, tmp_path: Path) -> None:
    one, two = write("a", "fused", [timed(50.0, "x")]), write("b", "fused", [timed(50.0, "y")])
    junit = tmp_path / "junit.xml"
    for options in ((), ("--allow-missing",), ("--fail-on", "none")):
        outcome = run("compare", one, two, "--format", f"junit={junit}", *options)
        assert outcome.code == 4
        assert "nothing of fused (b) could be compared" in outcome.err
        assert "gather_slots/x" in outcome.err
    assert len(ElementTree.fromstring(junit.read_text()).findall(".//error")) == 2
    empty = write("c", "fused", [])
    assert run("compare", empty, write("d", "fused", [])).code == 4


def test_nothing_in_common_with_one_of_two_sides(sides: Sides, write: Write) -> None:
    lost = write("run", "lost", [timed(50.0, "else")])
    outcome = run("compare", sides[0], sides[1], lost, "--allow-missing", "--fail-on", "missing")
    assert outcome.code == 4
    assert "nothing of lost could be compared" in outcome.err
    assert run("compare", sides[0], sides[1], lost, "--allow-missing").code == 1


@pytest.mark.parametrize("options", [(), ("--fail-on", "slower"), ("--fail-on", "none")])
def test_one_sample_is_no_pass(write: Write, options: Sequence[str]) -> None:
    cases = [make_case(samples={Quantity.HOST_US: [[value]]}) for value in (50.0, 80.0)]
    base, other = write("run", "baseline", cases[:1]), write("run", "fused", cases[1:])
    outcome = run("compare", base, other, *options)
    assert outcome.code == (4 if options else 5)
    assert "not all times of fused could be compared: gather_slots/small" in outcome.err
    assert "1 round of 1 instance are too few" in outcome.err


@pytest.mark.parametrize("runs", [("run", "run"), ("a", "b")])
@pytest.mark.parametrize("factor", [1.0, 4473.0])
def test_times_of_a_plan_without_instances_are_not_comparable(
    write: Write, runs: tuple[str, str], factor: float
) -> None:
    """Of one or of two runs: equal counts are no pass, unless they are all that is asked for."""
    base, other = (
        write(
            folder,
            variant,
            [timed(7.1 * by, seed=seed, rounds=make_rounds(48, 1), launches=make_launches(["k"]))],
        )
        for folder, variant, by, seed in zip(
            runs, ("baseline", "fused"), (1.0, factor), (1, 2), strict=True
        )
    )
    outcome = run("compare", base, other)
    assert outcome.code == 4
    assert "not all times of fused could be compared: gather_slots/small" in outcome.err
    assert (
        "48 rounds of 1 instance are too few for an interval; expected at least 3 rounds and 3 "
        "instances; sweep with --set plan.instances=8, and device times with as many of "
        "plan.profile_rounds at least, or name the metrics to compare by --metric, such as "
        "launches\n"
    ) in outcome.err
    assert run("compare", base, other, "--fail-on", "none").code == 4
    assert run("compare", base, other, "--metric", "launches").code == 0


def test_one_time_with_too_few_instances_is_no_pass_beside_another(write: Write) -> None:
    """As device times have where the plan asks for few rounds of the profiler."""
    sides = []
    for seed, (variant, us) in enumerate((("baseline", 5.0), ("fused", 500.0))):
        case = timed(50.0, seed=seed)
        gpu = make_measurement(series_of(Quantity.GPU_US), [[us], [us * 1.01], [us]], [0, 1, 8])
        case = case.model_copy(update={"measurements": [*case.measurements, gpu]})
        sides.append(write(variant, variant, [case]))
    outcome = run("compare", *sides)
    assert outcome.code == 4
    assert "gather_slots/small gpu_us: 3 rounds of 2 instances are too few" in outcome.err
    assert run("compare", *sides, "--metric", "host_us").code == 0


def test_all_metrics_decide_where_that_is_asked_for(write: Write) -> None:
    sides = []
    for seed, (variant, us) in enumerate((("baseline", 70.0), ("fused", 90.0))):
        step = {Quantity.STEP_US: timed(us, seed=seed + 5).measurements[0].samples}
        host = {Quantity.HOST_US: timed(50.0, seed=seed).measurements[0].samples}
        sides.append(write("run", variant, [make_case(samples=host | step)]))
    outcome = run("compare", *sides)
    assert outcome.code == 0
    assert "Verdicts: 1 SAME; exploratory metrics (they do not decide): 1 SLOWER." in outcome.out
    whole = run("compare", *sides, "--all")
    assert "--all-metrics lets the others decide" in " ".join(whole.out.split())
    for options in (("--all-metrics",), ("--metric", "*"), ("--metric", "step_us")):
        assert run("compare", *sides, *options).code == 1
    assert "Verdicts: 1 SLOWER, 1 SAME." in run("compare", *sides, "--all-metrics").out


REPORTS = Path(__file__).parents[2] / "reports"


@pytest.mark.parametrize("variant", ["fused", "one_launch"])
def test_the_committed_run_has_the_colour_that_its_page_says(variant: str) -> None:
    """Each variant is faster than the baseline; noise of other metrics changes nothing."""
    folder = REPORTS / "h100" / "origin"
    assert run("compare", folder).code == 0
    outcome = run("compare", folder / "baseline.json.xz", folder / f"{variant}.json.xz", "--json")
    assert outcome.code == 0
    counts = outcome.json()["deciding"]
    assert counts["FASTER"] > 20  # host and device times of 10 cases, and fewer launches
    assert (counts["SLOWER"], counts["INVALID"], counts["MISSING"]) == (0, 0, 0)


def test_a_variant_of_one_run_folder_only(write: Write, tmp_path: Path) -> None:
    for seed, folder in enumerate("ab"):
        write(folder, "fused", [timed(50.0, seed=seed)])
    write("b", "added", [timed(50.0)])
    assert run("compare", tmp_path / "a", tmp_path / "b").code == 4
    assert run("compare", tmp_path / "a", tmp_path / "b", "--allow-missing").code == 0


def test_files_that_cannot_be_written(
    sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sides[0] / "out.md"
    outcome = run("compare", *sides, "--format", f"md={path}")
    assert outcome.code == 2
    assert f"cannot write {path}: cannot make its folder: " in outcome.err
    assert "verdicts: 1 SLOWER, 1 FASTER, 1 SAME\n" in outcome.err
    shown = run("compare", *sides, "--format", f"md={path}", "--format", "table")
    assert shown.code == 2
    assert "SLOWER" in shown.out  # the table, which could be written
    both = tmp_path / "both"
    outcome = run("compare", *sides, "--format", f"md={both}", "--format", f"csv={both}")
    refused(outcome, 2, f"two --format options name {both}")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    outcome = run("compare", *sides, "--format", "github")
    assert outcome.code == 2
    assert f"cannot write {path}, which GITHUB_STEP_SUMMARY names: " in outcome.err


def test_what_is_no_regular_file_is_written_through(sides: Sides, tmp_path: Path) -> None:
    """By links, which a defect would replace and not the devices."""
    link, target, full, null = (tmp_path / name for name in ("link", "real.md", "full", "null"))
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    full.symlink_to("/dev/full")
    null.symlink_to("/dev/null")
    twice = ("--format", f"csv={null}", "--format", f"junit={null}")
    outcome = run("compare", *sides, "--format", f"md={link}", *twice)
    assert outcome.code == 1, outcome.err
    assert (link.is_symlink(), null.is_symlink()) == (True, True)
    assert "fused against baseline" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o600
    # Reports that can be written are, whatever becomes of one.
    last = tmp_path / "last.md"
    outcome = run("compare", *sides, "--format", f"csv={full}", "--format", f"md={last}")
    assert outcome.code == 2
    assert f"cannot write {full}: No space left on device" in outcome.err
    assert last.exists()
    assert full.is_symlink()


@pytest.mark.parametrize("target", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_stdout_by_another_name_is_stdout(sides: Sides, tmp_path: Path, target: str) -> None:
    """No table comes beside it, and nothing else may go there."""
    link = tmp_path / "link"
    link.symlink_to(target)
    outcome = run("compare", *sides, "--format", f"json={link}")
    assert len(verdicts(outcome)) == 3
    outcome = run("compare", *sides, "--format", f"json={link}", "--format", "md")
    refused(outcome, 2, "json and md would both go to stdout")


def test_no_file_and_no_stream_takes_two_reports(sides: Sides, tmp_path: Path) -> None:
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    outcome = run("compare", *sides, "--format", f"md={fifo}", "--format", f"csv={link}")
    refused(outcome, 2, f"two --format options name {link}")
    # The table would be lost, as the file that stdout is would be replaced.
    out = tmp_path / "out.md"
    command = [sys.executable, "-m", "bt_bench", "compare", *sides, "--format", f"md={out}"]
    with out.open("w") as stdout:
        done = subprocess.run(
            command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert f"--format {out}: stdout goes to this file too" in done.stderr


def test_a_fifo_is_read_and_waiting_for_it_is_said(sides: Sides, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(sides[1].read_bytes()))
    writer.start()
    outcome = run("compare", sides[0], fifo)
    writer.join()
    assert outcome.code == 1
    assert outcome.err == f"bt-bench: {fifo} is a FIFO; waiting for its writer\n"


def test_a_file_of_another_kind(sides: Sides, tmp_path: Path) -> None:
    verdicts_file = tmp_path / "verdicts.json"
    run("compare", *sides, "--format", f"json={verdicts_file}")
    outcome = run("compare", sides[0], verdicts_file)
    refused(outcome, 2, f"{verdicts_file} is a report of verdicts, not a result; no command")
    outcome = run("gate", "--static", "--config", "quick", "--against", sides[0])
    refused(outcome, 2, "is a result, not a static census; `bt-bench compare` and")
    outcome = run("selfcheck", "--recording", sides[0])
    refused(outcome, 2, "is a result, not a recording; `bt-bench compare` and")


def test_one_side_only(sides: Sides, write: Write) -> None:
    cases = [timed(50.0, "same", 5)]
    fewer = write("run", "fused", cases)
    outcome = run("compare", sides[0], fewer)
    assert outcome.code == 4
    assert "MISSING" in outcome.out
    assert run("compare", sides[0], fewer, "--allow-missing").code == 0
    assert read_result(fewer).cases == cases


def test_a_failed_case(write: Write) -> None:
    good = write("a", "baseline", [timed(50.0), timed(50.0, "other")])
    bad = write("a", "fused", [make_failed_case(message="slot 3"), timed(50.0, "other", 1)])
    outcome = run("compare", good, bad)
    assert outcome.code == 5
    assert "slot 3" in outcome.out
    assert run("compare", good, bad, "--fail-on", "slower").code == 0


def test_a_folder_without_results(tmp_path: Path) -> None:
    refused(run("compare", tmp_path, tmp_path / "gone.json"), 2, "holds no result file")


def test_without_torch_triton_or_pandas(sides: Sides, tmp_path: Path) -> None:
    blocked = "import sys\nfor name in ('torch', 'triton', 'pandas'):\n    sys.modules[name] = None"
    reports = {name: tmp_path / f"report.{name}" for name in FORMATS}
    options = [f"--format={name}={path}" for name, path in reports.items()]
    outcome = run_apart("compare", *sides, *options, prologue=blocked)
    assert outcome.code == 1, outcome.err
    assert all(path.read_text() for path in reports.values())


# Colours


def spread_of(us: float, quantity: Quantity = Quantity.HOST_US) -> ControlSpread:
    return ControlSpread(series=series_of(quantity), arm="baseline", difference_us=us)


@pytest.mark.parametrize("host", [1.0, 1.4, 0.6])
@pytest.mark.parametrize("moved_us", [0.0, 4.3, 40.0])
def test_two_runs_of_equal_code_pass_whatever_the_machine_does(
    write: Write, host: float, moved_us: float
) -> None:
    """A short host time, a control of a longer one that moved, and a host of another speed."""
    paths = []
    for seed, (folder, speed) in enumerate((("a", 1.0), ("b", host))):
        case = staged(16.0 * speed, seed=20 * seed, stage=3.0 * speed)
        case = case.model_copy(update={"control_spreads": [spread_of(moved_us)]})
        paths.append(write(folder, "one_launch", [case]))
    outcome = run("compare", *paths, "--json")
    assert outcome.code == 0, outcome.err
    (judgement,) = (j for j in outcome.json()["judgements"] if j["metric"] == "host_us")
    assert judgement["verdict"] in ("SAME", "INCONCLUSIVE")
    assert judgement["evidence"]["detectable"] > 0
    if judgement["verdict"] == "INCONCLUSIVE":
        assert "slowdown" in judgement["detail"]
    heading = run("compare", *paths, "--all").out
    assert re.search(r"Verdict +Metric .* Low +High +Margin +Limit\n", heading)


@pytest.mark.parametrize("runs", [("a", "a"), ("a", "b")])
def test_verdicts_follow_from_the_numbers_that_are_shown(
    write: Write, runs: tuple[str, str]
) -> None:
    """From the JSON alone, and from what the table prints, over random cases."""
    generator = np.random.default_rng(11)
    sides: list[list[CaseResult]] = [[], []]
    for index in range(60):
        us, noise = generator.uniform(2, 60), 10 ** generator.uniform(-3.5, -1)
        factor = generator.choice([1.0, 1 + generator.normal(0, 0.05)])
        moved = spread_of(us * 10 ** generator.uniform(-4, -1))
        for side, by in zip(sides, (1.0, factor), strict=True):
            samples = {
                quantity: [[float(x)] for x in of * np.exp(noise * generator.normal(size=48))]
                for quantity, of in ((Quantity.HOST_US, us * by), (Quantity.STAGE_US, 3.0))
            }
            side.append(make_case(f"c{index}", samples=samples, control_spreads=[moved]))
    paths = [write(runs[0], "baseline", sides[0]), write(runs[1], "fused", sides[1])]
    judgements = run("compare", *paths, "--json", "--metric", "host_us").json()["judgements"]
    table = run("compare", *paths, "--all", "--metric", "host_us").out
    rows = re.findall(r"^  ([A-Z]+) +host_us +\S+ +\S+ +\S+ +(\S+) +(\S+) +(\S+)", table, re.M)
    assert len(rows) == len(judgements) == 60
    seen = set()
    for judgement, (verdict, low, high, margin) in zip(judgements, rows, strict=True):
        shown = [100 * (judgement[end] - 1) for end in ("low", "high")]
        shown.append(100 * judgement["evidence"]["margin"]["share"])
        assert verdict_from(*shown) == judgement["verdict"]
        assert verdict_from(*map(float, (low, high, margin))) == verdict == judgement["verdict"]
        seen.add(verdict)
    assert seen == {"SLOWER", "FASTER", "SAME", "INCONCLUSIVE"}


def verdict_from(low: float, high: float, margin: float) -> str:
    if low > margin:
        return "SLOWER"
    if high < -margin:
        return "FASTER"
    return "SAME" if -margin <= low and high <= margin else "INCONCLUSIVE"


def test_what_is_left_out_is_counted_as_it_would_be_listed(write: Write) -> None:
    """A gap is part of other times: no table lists it, so the line on what is left out does not."""
    sides = []
    for seed, (variant, gap) in enumerate((("baseline", 5.0), ("fused", 9.0))):
        samples = {
            Quantity.HOST_US: timed(50.0, seed=seed).measurements[0].samples,
            Quantity.GAP_US: timed(gap, seed=seed + 5).measurements[0].samples,
        }
        cases = [make_case(name, samples=samples) for name in ("shown", "other")]
        sides.append(write("run", variant, cases))
    outcome = run("compare", *sides, "-k", "shown", "--json")
    (scope,) = outcome.json()["scope"]
    assert scope.endswith("nor for the exit code: 1 SAME.")


def test_means_of_exact_counts_have_no_interval(write: Write) -> None:
    sides = [
        write(
            "run",
            variant,
            [
                timed(50.0, name, seed, launches=make_launches(["k"] * (count + (name == "b"))))
                for name in "ab"
            ],
        )
        for seed, (variant, count) in enumerate((("baseline", 2), ("fused", 1)))
    ]
    overall = {each["metric"]: each for each in run("compare", *sides, "--json").json()["overall"]}
    assert (overall["launches"]["low"], overall["launches"]["high"]) == (None, None)
    assert overall["host_us"]["low"] is not None


def test_the_title_has_config_machine_and_whether_results_are_right(
    sides: Sides, write: Write
) -> None:
    title = run("compare", *sides).out.splitlines()[0]
    assert title.endswith(
        ": quick, 3 cases on NVIDIA H200, Example CPU 9000, all equal to the reference"
    )
    selected = run("compare", *sides, "-k", "slow").out.splitlines()[0]
    assert ": quick, 1 case on " in selected
    failed = write("run", "third", [make_failed_case("slow")])
    assert (
        run("compare", sides[0], failed)
        .out.splitlines()[0]
        .endswith(" on NVIDIA H200, Example CPU 9000")
    )


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (("a/run", "b/run"), ("a/run", "b/run")),
        (("a/run", "a/other"), ("run", "other")),
        (("a/x/run", "b/x/run"), ("a/x/run", "b/x/run")),
    ],
)
def test_folders_of_one_name_are_told_apart_by_what_differs(
    write: Write, tmp_path: Path, paths: tuple[str, str], labels: tuple[str, str]
) -> None:
    for path in paths:
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
        write(path, "fused", [timed(50.0)])
    found = run("compare", *(tmp_path / path for path in paths), "--json").json()
    assert (found["base"], *found["others"]) == labels


def test_failed_self_checks_are_named_after_the_sentences(write: Write) -> None:
    slow_harness = make_calibration({"empty_call": [0.167]})
    sound = make_calibration({"empty_call": [0.06]})
    first = [
        write("first", name, [timed(us, seed=seed)], calibration=slow_harness)
        for seed, (name, us) in enumerate((("baseline", 50.0), ("fused", 40.0)))
    ]
    failed = "the harness adds less than 0.1 µs to host times (found 0.1670 µs)."
    screen = run("compare", *first).out.splitlines()
    assert screen[1].startswith("- gather_slots: fused takes ")
    assert screen[2] == f"Failed self-check: {failed}"
    assert screen[3].startswith("Verdicts: ")
    assert f"Failed self-check: {failed}" in run("compare", *first, "--all").out
    told = run("compare", *first, "--json").json()["failed_self_checks"]
    assert told == [f"Failed self-check: {failed}"]

    write("second", "baseline", [timed(50.0)], calibration=sound)
    write("second", "fused", [timed(40.0, seed=1)], calibration=sound)
    screen = run("compare", first[0].parent, first[0].parent.with_name("second")).out
    assert [line for line in screen.splitlines() if "self-check" in line] == [
        f"Failed self-check of first: {failed}"
    ]
    labelled = ("compare", f"a={first[1]}", f"b={first[0].parent.with_name('second')}/fused.json")
    assert f"Failed self-check of a: {failed}" in run(*labelled).out


@pytest.mark.parametrize(
    ("options", "title", "order"),
    [
        ((), "By case", ["slower", "slow", "quick", "first"]),
        (("--sort", "name"), "By name", ["first", "quick", "slow", "slower"]),
        (("--sort", "change"), "By change", ["slower", "slow", "quick", "first"]),
        (("--sort", "verdict"), "By verdict", ["slower", "slow", "first", "quick"]),
    ],
)
def test_the_first_screen_is_sorted_as_asked(
    write: Write, options: Sequence[str], title: str, order: list[str]
) -> None:
    factors = {"quick": 0.8, "slow": 1.2, "first": 0.7, "slower": 1.4}
    base = [timed(50.0, name, seed) for seed, name in enumerate(factors)]
    other = [timed(50.0 * factor, name, 9) for name, factor in factors.items()]
    run_files = write("run", "baseline", base), write("run", "fused", other)
    text = run("compare", *run_files, *options).out
    listed = re.findall(r"gather_slots/(\w+) ", text)
    assert f"\n{title}: " in text
    assert listed == order


def test_sorting_the_first_screen_hides_no_regression(write: Write) -> None:
    names = [f"case_{number:02}" for number in range(20)]
    base = [timed(50.0, name, seed) for seed, name in enumerate(names)]
    other = [timed(55.0 if name == names[-1] else 25.0, name, 99) for name in names]
    run_files = write("run", "baseline", base), write("run", "fused", other)
    text = run("compare", *run_files, "--sort", "name").out
    assert "\nThe worst, by name: " in text
    rows = re.findall(r"(\w+) +gather_slots/(case_\d+)", text)
    assert len(rows) == 16
    assert rows[-1] == ("SLOWER", names[-1])


def test_a_base_that_failed_is_named_once_for_all_sides(write: Write) -> None:
    base = write("run", "baseline", [make_failed_case("slow")])
    others = [
        write("run", name, [timed(50.0, "slow", seed)]) for seed, name in enumerate(("fused", "x"))
    ]
    outcome = run("compare", base, *others)
    reason = "failed for baseline: slot_mappings[0, 3] is 17; the reference has 16"
    assert outcome.out.count(reason) == 1
    assert outcome.err.count(reason) == 1
    assert "error: nothing of fused and x could be compared: gather_slots/slow case" in outcome.err
