"""Which cases of a run are worth a profile."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from support.factories import make_case, make_failed_case, make_result

from bt_bench.analysis.compare.one_run import judge_run
from bt_bench.analysis.run.standouts import Standout, standouts
from bt_bench.base.names import Operation
from bt_bench.results.run.case import CaseResult
from bt_bench.results.run.nouns import Quantity, ReasonCode, Status
from bt_bench.results.run.result import VariantResult
from bt_bench.suites.block_tables import operations as ops

ROUNDS = 40


def case(
    name: str,
    step_us: float,
    operation: Operation = ops.STEP,
    *,
    noise: float = 0.001,
    quantity: Quantity = Quantity.STEP_US,
) -> CaseResult:
    """A case whose step takes a time in most rounds, in others up to `noise` times it longer."""
    rng = random.Random(f"{name} {step_us}")
    longer = [noise * max(0.0, rng.uniform(-2.0, 1.0)) for _ in range(ROUNDS)]
    samples = {quantity: [[step_us * (1 + share)] for share in longer]}
    return make_case(name, operation, samples)


def run_of(**times: Mapping[str, float]) -> list[VariantResult]:
    """Results by variant, whose cases take these times in a step."""
    return [
        make_result(name, [case(key, step_us) for key, step_us in of.items()])
        for name, of in times.items()
    ]


def test_the_slowest_and_the_most_changed_case() -> None:
    results = run_of(
        baseline={"small": 20.0, "long": 90.0, "middle": 40.0},
        fused={"small": 19.0, "long": 88.0, "middle": 20.0},
    )
    both = ("baseline", "fused")
    assert standouts(results) == [
        Standout(ops.STEP, "long", both, ("slowest: baseline takes 90.00 µs",)),
        Standout(
            ops.STEP,
            "middle",
            both,
            ("most changed: fused takes 50.0 % less than baseline (FASTER)",),
        ),
    ]


def test_one_case_may_be_both() -> None:
    results = run_of(baseline={"a": 10.0, "b": 20.0}, fused={"a": 10.0, "b": 30.0})
    (only,) = standouts(results)
    assert only.case == "b"
    assert only.why == (
        "slowest: fused takes 30.00 µs",
        "most changed: fused takes 50.0 % more than baseline (SLOWER)",
    )


@pytest.mark.parametrize(
    ("halved_us", "more_us", "expected"), [(5.0, 18.0, "halved"), (6.0, 18.0, "more")]
)
def test_a_factor_counts_alike_in_both_directions(
    halved_us: float, more_us: float, expected: str
) -> None:
    """Twice as fast is more than 1.8 times as slow, and that more than 1.67 times as fast."""
    results = run_of(
        baseline={"halved": 10.0, "more": 10.0, "long": 90.0},
        fused={"halved": halved_us, "more": more_us, "long": 90.0},
    )
    assert [each.case for each in standouts(results)] == ["long", expected]


def test_a_difference_that_is_shown_comes_first() -> None:
    base = [case("sure", 10.0), case("noisy", 10.0, noise=2.0)]
    fused = [case("sure", 11.0), case("noisy", 13.0, noise=2.0)]
    results = [make_result("baseline", base), make_result("fused", fused)]
    judged = judge_run(results)
    found = {each.case: each for each in judged.judgements}
    assert found["noisy"].verdict == "INCONCLUSIVE"
    assert (found["noisy"].ratio or 0) > (found["sure"].ratio or 0)
    why = {each.case: each.why for each in standouts(results)}
    assert why["sure"] == ("most changed: fused takes 10.0 % more than baseline (SLOWER)",)
    # Without one it is the largest of the others, and is said to be open.
    rest = [make_result("baseline", base[1:]), make_result("fused", fused[1:])]
    (only,) = standouts(rest)
    assert only.why[1].startswith("most changed: fused takes ")
    assert only.why[1].endswith("more than baseline (INCONCLUSIVE)")


def test_any_variant_counts_and_the_baseline_is_that_of_the_report() -> None:
    results = run_of(
        fused={"a": 9.0, "b": 9.0}, baseline={"a": 10.0, "b": 10.0}, slow={"a": 10.0, "b": 40.0}
    )
    (only,) = standouts(results)
    assert only.case == "b"
    assert only.variants == ("fused", "baseline", "slow")
    assert only.why[1] == "most changed: slow takes 300.0 % more than baseline (SLOWER)"


def test_the_whole_step_is_the_last_operation_that_was_timed() -> None:
    cases = [
        case("a", 10.0, ops.STEP),
        case("b", 80.0, ops.GATHER_SLOTS),
        case("c", 90.0, ops.STAGE),
    ]
    (only,) = standouts([make_result("baseline", cases)])
    assert (only.operation, only.case) == (ops.STEP, "a")
    (only,) = standouts([make_result("baseline", cases[1:])])
    assert (only.operation, only.case) == (ops.GATHER_SLOTS, "b")
    assert standouts([make_result("baseline", cases[2:])]) == []


def test_what_was_not_timed_or_not_right_does_not_count() -> None:
    short = case("short", 10.0)
    longer = case("longer", 20.0).model_copy(update={"status": Status.INSUFFICIENT})
    wrong = case("wrong", 99.0).model_copy(update={"status": Status.FAILED})
    other = case("other", 99.0, quantity=Quantity.HOST_US)
    (only,) = standouts([make_result("baseline", [short, longer, wrong, other])])
    assert (only.case, only.why) == ("short", ("slowest: baseline takes 10.00 µs",))
    assert standouts([make_result("baseline", [longer, wrong, other])]) == []
    assert standouts([]) == []


def test_variants_that_did_not_pass_are_left_out() -> None:
    lacking = make_failed_case(
        "a", ops.STEP, code=ReasonCode.UNSUPPORTED, status=Status.UNSUPPORTED
    )
    disturbed = case("a", 10.0).model_copy(update={"status": Status.INSUFFICIENT})
    results = [
        make_result("baseline", [case("a", 10.0)]),
        make_result("wrong", [make_failed_case("a", ops.STEP)]),
        make_result("lacking", [lacking]),
        make_result("disturbed", [disturbed]),
    ]
    (only,) = standouts(results)
    assert only.variants == ("baseline", "disturbed")
    assert only.why == ("slowest: baseline takes 10.00 µs",)
