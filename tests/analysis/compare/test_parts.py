"""Comparison of merged results: each case with the device and the calibration that it had."""

from __future__ import annotations

import pytest
from support.calibrations import make_calibration, make_figures
from support.factories import make_case, make_environment, make_gpu, make_result

from bt_bench.analysis.compare.entries import Matchup, Side
from bt_bench.analysis.compare.judge import Criteria, judge
from bt_bench.base.errors import NotComparableError, UsageError
from bt_bench.report.run.brief import brief_document
from bt_bench.report.run.document import run_document
from bt_bench.results import Part, Shard, compacted
from bt_bench.results.run.nouns import Quantity
from bt_bench.suites.block_tables import operations as ops

H100, H200 = "NVIDIA H100", "NVIDIA H200"
CASES = ("one", "two", "three")
OPERATION = ops.STEP


def part(index, count, gpu, empty_call=0.05):
    result = make_result(environment=make_environment(gpus=[make_gpu(gpu)]))
    return Part(
        run_id=f"run-{index}",
        created=result.created,
        tool=result.tool,
        environment=result.environment,
        calibration=make_calibration(figures=make_figures({"empty_call": empty_call})),
        shard=Shard(index=index, count=count, cases=len(CASES), division="d"),
    )


def merged(variant, gpus, time=10.0, run_id="merged", places=(0, 1, 0)):
    """A merged result; `places` are the parts of its cases."""
    parts = [part(index, len(gpus), gpu) for index, gpu in enumerate(gpus, start=1)]
    cases = [
        make_case(name, OPERATION, {Quantity.HOST_US: [[time]] * 3}, part=place % len(parts))
        for name, place in zip(CASES, places, strict=True)
    ]
    result = make_result(variant, cases, run_id=run_id, environment=parts[0].environment)
    return result.model_copy(update={"parts": parts})


def verdicts(base, other, **criteria):
    sides = (Side("base", compacted(base)), Side("other", compacted(other)))
    return judge([Matchup(*sides)], Criteria(**criteria))


def test_variants_of_a_merged_run_are_compared_round_by_round():
    judged = verdicts(merged("baseline", [H100, H200]), merged("fused", [H100, H200], 20.0))
    assert len(judged.judgements) == len(CASES)
    assert not any(judgement.advisory for judgement in judged.judgements)
    assert f"{H100}, Example CPU 9000 and on {H200}" in judged.subject


def test_cases_on_equal_devices_of_two_merged_runs_are_compared():
    before = merged("fused", [H100, H200], run_id="before")
    after = merged("fused", [H100, H200], run_id="after")
    assert {each.advisory for each in verdicts(before, after).judgements} == {True}


def test_cases_on_other_devices_are_refused_with_their_shards():
    before = merged("fused", [H100, H200], run_id="before")
    after = merged("fused", [H200, H100], run_id="after")
    with pytest.raises(NotComparableError) as caught:
        verdicts(before, after)
    assert str(caught.value).startswith(
        "base (shard 1/2) and other (shard 1/2) are not comparable: "
        f"device name {H100} against {H200}"
    )
    judged = verdicts(before, after, ignore_device=True)
    assert sum("as allowed: device name" in warning for warning in judged.warnings) == 2


def test_a_part_is_compared_with_the_parts_of_its_cases_alone():
    # All cases of `before` that are compared are on one device, whatever else it has.
    before = merged("fused", [H100, H200], run_id="before", places=(0, 0, 0))
    after = make_result(
        "fused",
        [case.model_copy(update={"part": None}) for case in before.cases],
        environment=make_environment(gpus=[make_gpu(H100)]),
        run_id="after",
    )
    assert len(verdicts(before, after).judgements) == len(CASES)


def test_arms_of_a_case_from_two_parts_are_never_compared():
    base = merged("baseline", [H100, H200], places=(0, 1, 0))
    other = merged("fused", [H100, H200], places=(0, 1, 1))
    with pytest.raises(UsageError, match="case 'step/three' is of shard 1/2 for base, and of "):
        verdicts(base, other)


def test_self_checks_are_of_the_shard_that_failed_them():
    results = []
    for variant in ("baseline", "fused"):
        result = merged(variant, [H100, H200])
        parts = [result.parts[0], part(2, 2, H200, empty_call=0.5)]
        results.append(result.model_copy(update={"parts": parts}))
    assert verdicts(*results).self_checks == (
        "Failed self-check of shard 2/2: the harness adds less than 0.1 µs to host times (found "
        "0.5000 µs).",
    )


def text_of(document):
    return "\n".join(map(str, [*document.lead, *document.sections, document.title]))


def test_reports_name_all_devices_and_have_the_calibration_of_each_shard():
    results = [merged("baseline", [H100, H200]), merged("fused", [H100, H200])]
    brief, whole = text_of(brief_document(results)), text_of(run_document(results))
    assert f"on {H100}, Example CPU 9000 and on {H200}, Example CPU 9000" in brief
    for text in (brief, whole):
        assert f"shard 1/2: Measured on {H100}" in text
        assert f"shard 2/2: Measured on {H200}" in text
        assert "It is merged of 2 shards." in text
    titles = [section.title for section in run_document(results).sections]
    assert {"Calibration: shard 1/2", "Calibration: shard 2/2"} <= {*titles}


def test_a_partial_merge_says_what_is_missing():
    results = [merged(name, [H100, H200]) for name in ("baseline", "fused")]
    partial = [each.model_copy(update={"complete": False}) for each in results]
    assert "PARTIAL: merged of 2 of 2 shards; 3 of 3 workloads are done" in text_of(
        brief_document(partial)
    )
    with pytest.raises(NotComparableError, match="merged without all shards of the sweep"):
        verdicts(*partial)
