"""Pairing of cases, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest
from factories import (
    make_calibration,
    make_case,
    make_environment,
    make_failed_case,
    make_gpu,
    make_launches,
    make_measurement,
    make_result,
    make_rounds,
    make_workload,
)

from bt_bench.compare import baseline_index, compare, unique_labels
from bt_bench.errors import ExitCode, NotComparableError, UsageError
from bt_bench.model import (
    Cache,
    CaseResult,
    LaunchPath,
    Load,
    Method,
    Plan,
    Quantity,
    ReasonCode,
    Series,
    Status,
)
from bt_bench.operation import Operation
from bt_bench.series import series_of


def _timed(name: str = "small", event_us: float = 50.0) -> CaseResult:
    return make_case(name, samples={Quantity.EVENT_US: [[event_us]]})


def test_medians_and_savings() -> None:
    base = make_case(samples={Quantity.EVENT_US: [[60.0], [50.0], [90.0]]})
    other = make_case(samples={Quantity.EVENT_US: [[20.0], [15.0]]})
    fused = make_result("fused", [other], run_id="another")
    comparison = compare([make_result("baseline", [base]), fused])
    (pair,) = comparison.pairs
    (event,) = pair.series
    assert (pair.base, pair.other, pair.case) == ("baseline", "fused", "small")
    assert (event.base_us, event.other_us) == (60.0, 17.5)
    assert event.savings_us == 42.5
    assert event.savings_percent == pytest.approx(70.833, abs=1e-3)
    assert comparison.missing == comparison.failed == comparison.warnings == ()


def test_a_slower_side_has_negative_savings() -> None:
    results = [make_result("baseline", [_timed()]), make_result("fused", [_timed(event_us=75.0)])]
    event = compare(results).pairs[0].series[0]
    assert (event.savings_us, event.savings_percent) == (-25.0, -50.0)


def test_a_quantity_of_one_side_has_no_savings() -> None:
    base = make_case(samples={Quantity.EVENT_US: [[60.0]], Quantity.GPU_US: [[0.0]]})
    other = make_case(samples={Quantity.STEP_US: [[9.0]], Quantity.GPU_US: [[2.0]]})
    comparison = compare([make_result("baseline", [base]), make_result("fused", [other])])
    gpu, step, event = comparison.pairs[0].series
    assert (gpu.savings_us, gpu.savings_percent) == (-2.0, None)
    assert (step.base_us, step.other_us, step.savings_us) == (None, 9.0, None)
    assert (event.base_us, event.other_us, event.savings_percent) == (60.0, None, None)


def test_windows_are_compared_by_the_median_of_their_steps() -> None:
    samples = {Quantity.EVENT_US: [[1.0, 10.0, 3.0], [3.0, 30.0, 5.0]]}
    case = make_case(samples=samples, num_steps=3)
    event = compare([make_result("a", [case]), make_result("b", [case])]).pairs[0].series[0]
    assert event.base_us == 4.0


def test_cases_pair_by_operation_and_digest_whatever_their_names() -> None:
    workload = make_workload("shared")
    base = [make_case("old name", workload=workload), make_case("old name", Operation.STEP)]
    other = [make_case("other step", Operation.STEP), make_case("new name", workload=workload)]
    comparison = compare([make_result("a", base), make_result("b", other)])
    assert [(pair.operation, pair.case) for pair in comparison.pairs] == [
        (Operation.GATHER_SLOTS, "old name")
    ]
    assert {(case.case, case.absent) for case in comparison.missing} == {
        ("old name", "b"),
        ("other step", "a"),
    }


def test_equal_workloads_of_one_file_pair_by_name_first() -> None:
    workload = make_workload("shared")

    def timed(name: str, event_us: float) -> CaseResult:
        return make_case(name, samples={Quantity.EVENT_US: [[event_us]]}, workload=workload)

    base = [timed("x", 1.0), timed("y", 2.0), timed("z", 3.0)]
    other = [timed("renamed", 30.0), timed("y", 20.0), timed("x", 10.0)]
    comparison = compare([make_result("a", base), make_result("b", other)])
    pairs = [(p.series[0].base_us, p.series[0].other_us) for p in comparison.pairs]
    assert pairs == [(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)]
    assert comparison.missing == ()


def test_missing_cases_say_why() -> None:
    base = [_timed("both"), _timed("changed"), _timed("dropped")]
    other = [_timed("both"), make_case("changed", workload=make_workload("else"))]
    comparison = compare([make_result("a", base), make_result("b", other, complete=False)])
    assert [(case.case, case.absent, case.why) for case in comparison.missing] == [
        ("changed", "b", "b has another workload under this name"),
        ("dropped", "b", "b is partial and has not reached it"),
        ("changed", "a", "a has another workload under this name"),
    ]
    assert comparison.warnings == ("b is a partial result",)


def test_failed_cases_are_listed_and_not_compared() -> None:
    base = [_timed("good"), _timed("bad"), make_failed_case("worse", message="raised")]
    failed_too = make_failed_case("worse")
    other = [_timed("good"), make_failed_case("bad", message="slot 3"), failed_too]
    comparison = compare([make_result("a", base), make_result("b", other)])
    assert [pair.case for pair in comparison.pairs] == ["good"]
    assert [(f.case, f.label, f.status.value) for f in comparison.failed] == [
        ("bad", "b", "failed"),
        ("worse", "a", "failed"),
        ("worse", "b", "failed"),
    ]
    assert comparison.failed[0].reason is not None
    assert comparison.failed[0].reason.message == "slot 3"


def test_insufficient_cases_are_listed_and_not_compared() -> None:
    disturbed = make_failed_case(
        "hot", message="too few", code=ReasonCode.DISTURBED, status=Status.INSUFFICIENT
    )
    results = [
        make_result("a", [_timed("good"), _timed("hot")]),
        make_result("b", [_timed("good"), disturbed]),
    ]
    comparison = compare(results)
    assert [pair.case for pair in comparison.pairs] == ["good"]
    (failed,) = comparison.failed
    assert (failed.label, failed.status) == ("b", Status.INSUFFICIENT)
    assert failed.reason is not None
    assert failed.reason.code is ReasonCode.DISTURBED


def test_launches_are_compared_exactly() -> None:
    def result(name: str, *launches: str) -> object:
        return make_result(name, [make_case(launches=make_launches(launches))])

    def pair(*launches: str) -> tuple[object, object, object]:
        found = compare([result("a", "gather", "slots"), result("b", *launches)])  # type: ignore[list-item]
        return dataclasses.astuple(found.pairs[0].launches)

    assert pair("slots", "gather") == ((2,), (2,), True)
    assert pair("gather", "gather") == ((2,), (2,), False)
    assert pair("copy:gather", "slots") == ((2,), (2,), False)
    assert pair("gather_slots") == ((2,), (1,), False)


def test_launches_that_were_not_counted_are_none() -> None:
    counted = make_case(launches=make_launches(["a"], []))
    comparison = compare([make_result("a", [counted]), make_result("b", [make_case()])])
    launches = comparison.pairs[0].launches
    assert (launches.base, launches.other, launches.same) == ((1, 0), None, None)


def test_three_results_are_each_set_against_the_base_wherever_it_stands() -> None:
    results = [make_result(name, [_timed()]) for name in ("fused", "baseline", "other")]
    comparison = compare(results)
    assert comparison.base == "baseline"
    assert [(pair.base, pair.other) for pair in comparison.pairs] == [
        ("baseline", "fused"),
        ("baseline", "other"),
    ]
    assert compare(results, base=0).base == "fused"


def test_a_failure_of_the_base_is_listed_once() -> None:
    base = make_result("baseline", [_timed("good"), make_failed_case("bad")])
    others = [make_result(name, [_timed("good"), _timed("bad")]) for name in ("x", "y")]
    assert [failure.label for failure in compare([base, *others]).failed] == ["baseline"]


def test_the_base_is_the_first_where_no_variant_is_named_baseline() -> None:
    assert baseline_index([make_result("b"), make_result("a")]) == 0


def test_labels() -> None:
    results = [
        make_result("fused", run_id="monday"),
        make_result("fused", run_id="tuesday"),
        make_result("fused", run_id="tuesday"),
        make_result("baseline"),
    ]
    assert unique_labels(results) == [
        "fused (monday)",
        "fused (tuesday)",
        "fused (tuesday) #2",
        "baseline",
    ]
    assert unique_labels(results, ["x", "x", "x #2", "y"]) == ["x", "x #2", "x #2 #2", "y"]
    with pytest.raises(UsageError, match="got 1 labels for 4 results"):
        unique_labels(results, ["x"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": [make_gpu("NVIDIA H100")]}, "device name NVIDIA H200 against NVIDIA H100"),
        ({"torch": "2.13.0"}, "torch 2.11.0 against 2.13.0"),
        ({"triton": None}, "Triton 3.6.0 against unknown"),
        ({"cuda": "13.0"}, "CUDA 12.8 against 13.0"),
        ({"device": "cpu"}, "device cuda against cpu"),
        ({"interpreted": True}, "interpreted False against True"),
    ],
)
def test_another_device_is_refused(changes: dict[str, object], message: str) -> None:
    results = [
        make_result("baseline", [_timed()]),
        make_result("fused", [_timed()], environment=make_environment(**changes)),  # type: ignore[arg-type]
    ]
    with pytest.raises(NotComparableError, match="baseline and fused are not comparable") as error:
        compare(results, ignore_plan=True)
    assert message in str(error.value)
    assert error.value.exit_code is ExitCode.NOT_COMPARABLE
    (warning, *_) = compare(results, ignore_device=True).warnings
    assert warning.startswith("baseline and fused differ, as allowed: ")


def test_another_cpu_is_another_device() -> None:
    results = [
        make_result(name, [_timed()], environment=make_environment("cpu", cpu=name))
        for name in ("one", "two")
    ]
    with pytest.raises(NotComparableError, match="device name one against two"):
        compare(results)


def test_driver_and_commit_may_differ() -> None:
    environment = make_environment(driver="1", commit="2", dirty=True, python="3.11")
    results = [make_result("a", [_timed()]), make_result("b", [_timed()], environment=environment)]
    assert compare(results).warnings == ()


def test_another_plan_is_refused() -> None:
    results = [
        make_result("a", [_timed()]),
        make_result("b", [_timed()], plan=Plan(rounds=4, warmup_rounds=1, seed=7)),
    ]
    with pytest.raises(NotComparableError, match=r"plan.rounds 3 against 4; plan.seed 0 against 7"):
        compare(results, ignore_device=True)
    assert len(compare(results, ignore_plan=True).warnings) == 2


def test_lists_of_a_plan_are_spelled_as_in_a_config() -> None:
    plan = Plan(rounds=3, warmup_rounds=1, launch_paths=[LaunchPath.JIT])
    results = [make_result("a", [_timed()]), make_result("b", [_timed()], plan=plan)]
    with pytest.raises(
        NotComparableError, match=r"plan.launch_paths \[jit, compiled, graph\] against \[jit\]"
    ):
        compare(results)


def test_another_schema_is_refused_whatever_is_ignored() -> None:
    newer = make_result("b", [_timed()]).model_copy(update={"schema_version": 3})
    with pytest.raises(NotComparableError, match="schema version 2 against 3"):
        compare([make_result("a", [_timed()]), newer], ignore_device=True, ignore_plan=True)


def test_no_case_in_common_is_refused() -> None:
    results = [make_result("a", [_timed("x")]), make_result("b", [_timed("y")])]
    with pytest.raises(
        NotComparableError,
        match="a and b have no case in common; for gather_slots/x, b has no such workload",
    ):
        compare(results)
    with pytest.raises(NotComparableError, match="both are empty"):
        compare([make_result("a"), make_result("b")])


def test_only_failed_cases_in_common_are_refused_with_the_reason() -> None:
    results = [
        make_result("a", [_timed()]),
        make_result("b", [make_failed_case(message="slot 3 is wrong")]),
    ]
    with pytest.raises(NotComparableError, match=r"no case that both completed.*slot 3 is wrong"):
        compare(results)


def test_one_result_cannot_be_compared() -> None:
    with pytest.raises(UsageError, match="two results or more, got 1"):
        compare([make_result()])


def test_sides_of_one_run_are_paired_by_round() -> None:
    left = make_case("a", samples={Quantity.EVENT_US: [[10.0], [11.0], [50.0], [51.0]]})
    right = make_case("a", samples={Quantity.EVENT_US: [[9.0], [10.0], [49.0], [50.0]]})
    one_run = [make_result("baseline", [left]), make_result("fused", [right])]
    (pair,) = compare(one_run).pairs
    assert pair.series[0].paired
    assert pair.series[0].savings_us == 1.0
    two_runs = [make_result("baseline", [left]), make_result("fused", [right], run_id="another")]
    (pair,) = compare(two_runs).pairs
    assert not pair.series[0].paired
    assert pair.series[0].savings_us == 1.0


def test_rounds_that_one_side_discarded_do_not_pair() -> None:
    series = series_of(Quantity.EVENT_US)
    left = make_case("a").model_copy(
        update={"measurements": [make_measurement(series, [[10.0], [50.0], [12.0]], [0, 1, 2])]}
    )
    right = make_case("a").model_copy(
        update={"measurements": [make_measurement(series, [[9.0], [11.0]], [0, 2])]}
    )
    (event,) = compare([make_result("a", [left]), make_result("b", [right])]).pairs[0].series
    assert (event.base_us, event.other_us, event.savings_us) == (12.0, 10.0, 1.0)
    assert event.paired


def test_every_series_is_a_pair_of_its_own() -> None:
    series = [
        series_of(Quantity.EVENT_US, load=Load.BUSY, l2=Cache.COLD),
        series_of(Quantity.EVENT_US, load=Load.BUSY),
        series_of(Quantity.GPU_US, method=Method.GRAPH_SLOPE, launch_path=LaunchPath.GRAPH),
        series_of(Quantity.EVENT_US),
        series_of(Quantity.HOST_US, launch_path=LaunchPath.COMPILED),
        series_of(Quantity.GPU_US),
        series_of(Quantity.HOST_US),
    ]
    case = make_case(samples={each: [[1.0 + place]] for place, each in enumerate(series)})
    pairs = compare([make_result("a", [case]), make_result("b", [case])]).pairs[0].series
    assert [pair.base_us for pair in pairs] == [7.0, 5.0, 6.0, 3.0, 4.0, 2.0, 1.0]
    assert {pair.series for pair in pairs} == set(series)


def _side(values: list[float], series: Series) -> CaseResult:
    samples = {series: [[value] for value in values]}
    return make_case(samples=samples, rounds=make_rounds(len(values), instances=3))


def test_savings_are_resolved_or_not() -> None:
    series = series_of(Quantity.STEP_US)
    base = make_result("baseline", [_side([50.0, 50.5, 51.0, 50.0, 50.5, 51.0] * 2, series)])
    other = _side([50.1, 50.5, 50.9, 50.1, 50.5, 50.9] * 2, series)
    faster = _side([30.1, 30.5, 30.9, 30.1, 30.5, 30.9] * 2, series)
    results = [base, make_result("same", [other]), make_result("faster", [faster])]
    same, fast = (pair.series[0] for pair in compare(results).pairs)
    assert (same.resolved, fast.resolved) == (False, True)
    assert fast.resolution is not None
    assert fast.savings_us == pytest.approx(20.0)
    elsewhere = make_result("faster", [faster], run_id="another")
    (pair,) = compare([base, elsewhere]).pairs
    assert (pair.series[0].resolution, pair.series[0].resolved) == (None, None)


def test_each_side_is_checked_with_the_calibration_of_its_own_run() -> None:
    samples = {
        series_of(Quantity.EVENT_US, load=Load.BUSY): [[12.0]],
        series_of(Quantity.SPAN_US, load=Load.BUSY): [[10.0]],
    }
    case = make_case(samples=samples, launches=make_launches(["gather"]))
    intercepts = {Method.EVENTS: 2.0, Method.PROFILER: 0.5}
    results = [
        make_result("a", [case], calibration=make_calibration(intercepts_us=intercepts)),
        make_result("b", [case]),
    ]
    (pair,) = compare(results).pairs
    assert [check.agrees for check in pair.base_checks] == [True]
    assert [check.agrees for check in pair.other_checks] == [None]
