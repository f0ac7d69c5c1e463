"""Runs, cases and samples as objects."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.commands import run as command
from support.committed import ORIGIN
from support.factories import make_case, make_failed_case, make_result

from bt_bench.api.reading import Run, load
from bt_bench.base.errors import UsageError
from bt_bench.results.run.nouns import Quantity


@pytest.fixture(scope="module")
def origin() -> Run:
    return load(ORIGIN)


def test_a_run(origin):
    assert origin.variants[0] == origin.baseline == "baseline"
    assert (origin.config, origin.complete, origin.failed) == ("origin", True, ())
    assert origin.environment.device == "cuda"
    assert len(origin.cases) == 2 * 5 * len(origin.variants)
    assert repr(origin).startswith(f"<Run {ORIGIN}: 10 cases of baseline, ")
    assert load(str(ORIGIN)).id == origin.id


def test_samples_are_arrays_with_unit_and_quantity(origin):
    case = origin.case("small_batch_1grp", variant="fused", operation="step")
    busy = case.samples["event_us/busy/cold"]
    assert (busy.quantity, busy.unit, busy.per) == ("event_us", "us", "step")
    assert busy.values.shape == (len(busy.rounds), case.workload.num_steps)
    assert busy.values.dtype == np.float64
    assert np.asarray(busy) is busy.values
    assert np.array_equal(np.asarray(busy, np.float32), busy.values.astype(np.float32))
    assert case.launches is not None
    (stored,) = [
        each
        for each in case.result.measurements
        if (each.quantity, each.load, each.l2) == ("event_us", "busy", "cold")
    ]
    assert busy.values.tolist() == stored.samples


def test_medians_are_those_of_the_report(origin):
    (shown,) = [
        each
        for each in command("show", ORIGIN, "--json").json()["cases"]
        if (each["variant"], each["operation"], each["case"])
        == ("fused", "step", "small_batch_1grp")
    ]
    case = origin.case("small_batch_1grp", variant="fused", operation="step")
    assert case.samples["host_us"].median == pytest.approx(shown["medians"]["host_us"], rel=1e-6)


def test_verdicts_are_those_of_compare(origin):
    judged = json.loads(command("compare", ORIGIN, "--json").out)["judgements"]
    assert [(each.key, each.metric, each.verdict, each.low) for each in origin.verdicts] == [
        (f"{each['operation']}/{each['case']}", each["metric"], each["verdict"], each["low"])
        for each in judged
    ]


def test_it_prints_itself_as_show_does(origin):
    shown = command("show", ORIGIN).out
    assert shown.startswith(str(origin))
    in_notebook = origin._repr_markdown_()
    assert in_notebook.startswith(f"# {shown.splitlines()[0]}\n")
    assert "\n| small_batch_1grp " in in_notebook


def test_one_file_is_a_run_without_verdicts():
    run = load(ORIGIN / "fused.json.xz")
    assert (run.variants, run.verdicts) == (("fused",), ())
    assert run.case("small_batch_1grp", operation="step").variant == "fused"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "smal_batch_1grp"}, "no case 'smal_batch_1grp' in .*; did you mean 'small_batch"),
        ({"name": "small_batch_1grp"}, "was measured with [0-9]+ variants; expected variant= one"),
        ({"name": "small_batch_1grp", "variant": "fuse"}, "no variant 'fuse' in .*; did you mean"),
        ({"name": "small_batch_1grp", "variant": "fused"}, "with 2 operations; expected operation"),
    ],
)
def test_a_case_must_be_named(origin, options, message):
    with pytest.raises(UsageError, match=message):
        origin.case(**options)


def test_cases_that_failed_have_their_reason_and_no_samples():
    run = Run(ORIGIN, (make_result(cases=[make_failed_case("a"), make_case("b")]),))
    (case,) = run.failed
    assert (case.name, case.status, dict(case.samples)) == ("a", "failed", {})
    assert "the reference has 16" in (case.reason or "")
    assert run.cases[1].reason is None


def test_a_window_has_a_column_per_step():
    samples = {Quantity.HOST_US: [[1.0, 9.0], [3.0, 11.0]]}
    run = Run(ORIGIN, (make_result(cases=[make_case("a", samples=samples, num_steps=2)]),))
    host = run.case("a").samples["host_us"]
    assert (host.values.shape, host.median) == ((2, 2), 6.0)
    assert repr(host) == "<Samples host_us: 2 rounds × 2 step, median 6 us>"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (ORIGIN / "nope", "does not exist; expected a run folder or a result file"),
        (ORIGIN.parent, "is not a run folder"),
        (ORIGIN / "comparison.md", "is not JSON"),
    ],
)
def test_something_else_is_refused(path, message):
    with pytest.raises(UsageError, match=message):
        load(path)


def test_a_table(origin):
    frame = origin.to_pandas()
    row = frame.set_index(["variant", "operation", "case", "metric"]).loc[
        ("fused", "step", "small_batch_1grp", "host_us")
    ]
    case = origin.case("small_batch_1grp", variant="fused", operation="step")
    assert row["median_us"] == pytest.approx(case.samples["host_us"].median)
    keys = ["operation", "case", "metric"]
    timed = [each for each in origin.verdicts if each.evidence is not None]
    tabled = set(frame[keys].itertuples(index=False, name=None))
    assert {(each.operation, each.case, each.metric) for each in timed} <= tabled
