"""Verdicts of the static gate: what is found, what passes, and what is refused."""

from __future__ import annotations

import pytest
from support.censuses import made_up, toolchain

from bt_bench.analysis.census import ALL_CASES, equal_host_code, equal_launches, judge_static
from bt_bench.analysis.census_figures import REGISTERS, SPILLS, CensusOperation, figures_of
from bt_bench.analysis.deciding import exit_code
from bt_bench.analysis.verdicts import Cause, Verdict
from bt_bench.base.errors import ExitCode, NotComparableError
from bt_bench.base.names import Operation
from bt_bench.results.gate.census import CensusCase, Kernel, OperationCensus
from bt_bench.suites.block_tables import operations as ops

CHANGED = (Verdict.SLOWER, Verdict.FASTER)


def changes(judged):
    """Verdicts that are not `SAME`, by operation, case and metric."""
    return {
        (str(j.operation), j.case, j.metric): j.verdict
        for j in judged.judgements
        if j.verdict is not Verdict.SAME
    }


def equal_everywhere(base, head):
    places = [(case.name, operation) for case in base.cases for operation in ("apply", "step")]
    return {
        place
        for place in places
        if equal_launches(base, head, "fused", place[0], Operation(place[1]))
    }


# What is compiled from changed sources


def test_another_suite_is_not_compared(censuses):
    base = censuses("original")
    with pytest.raises(NotComparableError, match="suite block_tables against pages"):
        judge_static(base, base.model_copy(update={"suite": "pages"}))


def test_comments_change_nothing(censuses):
    base, head = censuses("original"), censuses("comments")
    judged = judge_static(base, head, "main", "worktree")
    assert {j.verdict for j in judged.judgements} == {Verdict.SAME}
    assert {j.cause for j in judged.judgements} == {Cause.EXACT}
    assert exit_code(judged) is ExitCode.OK
    assert equal_host_code(base, head, "fused")
    assert len(equal_everywhere(base, head)) == 4
    assert judged.facts[1] == "fused: the Python code is equal, the binaries are equal."
    first = judged.judgements[0]
    assert (first.base, first.other) == ("fused@main", "fused@worktree")


def test_another_constant_is_another_binary_but_no_verdict(censuses):
    base, head = censuses("original"), censuses("constant")
    judged = judge_static(base, head)
    assert changes(judged) == {}
    assert not equal_host_code(base, head, "fused")
    assert equal_everywhere(base, head) == {("uniform", "apply"), ("trace", "apply")}
    assert "the binaries differ for gather_slots_kernel (sm_90)" in judged.facts[1]


def test_larger_blocks_take_more_registers(censuses):
    judged = judge_static(censuses("original"), censuses("block"))
    assert changes(judged) == {
        ("step", case, "registers"): Verdict.SLOWER for case in ("uniform", "trace")
    }
    assert exit_code(judged) is ExitCode.REGRESSION
    worse = next(j for j in judged.judgements if j.verdict is Verdict.SLOWER)
    assert worse.other_value > worse.base_value
    assert worse.ratio == worse.other_value / worse.base_value
    assert worse.detail.startswith(f"{worse.other_value:g} in gather_slots_kernel, was ")


def test_spills_are_worse_and_fewer_registers_better(censuses):
    judged = judge_static(censuses("original"), censuses("few_registers"))
    found = changes(judged)
    assert found["step", "uniform", "spills"] is Verdict.SLOWER
    assert found["step", "uniform", "registers"] is Verdict.FASTER
    assert exit_code(judged) is ExitCode.REGRESSION


def test_sizes_that_select_a_binary_are_more_compiled_variants(censuses):
    judged = judge_static(censuses("original"), censuses("specialised"))
    found = changes(judged)
    assert found["step", "trace", "compiled_variants"] is Verdict.SLOWER
    assert found["step", ALL_CASES, "compiled_variants"] is Verdict.SLOWER
    assert ("step", "uniform", "compiled_variants") not in found
    assert exit_code(judged) is ExitCode.REGRESSION


@pytest.mark.parametrize("name", ["extra_launch", "torch"])
def test_a_launch_more(censuses, name):
    judged = judge_static(censuses("original"), censuses(name))
    assert changes(judged)["step", "uniform", "launches"] is Verdict.SLOWER
    back = judge_static(censuses(name), censuses("original"))
    assert changes(back)["step", "uniform", "launches"] is Verdict.FASTER
    assert exit_code(back) is ExitCode.OK


@pytest.mark.parametrize("name", ["grid", "data"])
def test_another_grid_or_other_data_is_not_the_same_work(censuses, name):
    base, head = censuses("original"), censuses(name)
    judged = judge_static(base, head)
    assert changes(judged) == {}
    assert "the binaries are equal; launches, grids or data differ in apply/" in judged.facts[1]
    assert equal_everywhere(base, head) == set()


@pytest.mark.parametrize("turned", [False, True])
def test_a_failure_is_invalid(censuses, turned):
    sides = [censuses("original"), censuses("broken")]
    judged = judge_static(*(reversed(sides) if turned else sides), "main", "worktree")
    found = [j for j in judged.judgements if j.verdict is not Verdict.SAME]
    assert {(j.case, j.verdict, j.cause) for j in found} == {
        (case, Verdict.INVALID, Cause.FAILED) for case in ("uniform", "trace")
    }
    side = "fused@main" if turned else "fused@worktree"
    assert found[0].detail.startswith(f"{side} failed for sm_90: a kernel does not compile")
    assert exit_code(judged) is ExitCode.CHECK_FAILED
    assert equal_everywhere(*sides) == {("uniform", "apply"), ("trace", "apply")}
    assert not equal_launches(sides[1], sides[1], "fused", "uniform", ops.STEP)


def test_a_variant_of_one_side_only_is_missing(censuses, again):
    judged = judge_static(censuses("original"), again, "main", "worktree")
    missing = [j for j in judged.judgements if j.verdict is Verdict.MISSING]
    assert {j.cause for j in missing} == {Cause.NO_CASE}
    assert len(missing) == 4
    assert missing[0].detail == (
        "in the census of baseline@worktree, but missing from baseline@main's"
    )
    assert exit_code(judged) is ExitCode.NOT_COMPARABLE
    assert not equal_host_code(censuses("original"), again, "baseline")
    assert not equal_launches(censuses("original"), again, "baseline", "uniform", ops.STEP)


# Censuses with made-up figures


def test_targets_that_change_apart_have_metrics_of_their_own():
    head = made_up([("sm_80", 33), ("sm_90", 30)])
    assert changes(judge_static(made_up(), head)) == {
        ("step", "case", "registers/sm_80"): Verdict.SLOWER
    }
    assert [j.metric for j in judge_static(made_up(), made_up()).judgements] == [
        "launches",
        "compiled_variants",
        "registers",
        "spills",
    ]


def test_a_head_that_launches_nothing_is_not_faster():
    base, head = made_up(launches=(2, 4)), made_up(launches=(0, 0))
    judged = judge_static(base, head, "main", "worktree")
    (only,) = judged.judgements
    assert (only.verdict, only.cause) == (Verdict.INVALID, Cause.FAILED)
    assert only.detail.startswith("fused@worktree launches nothing, and fused@main 3 per step")
    assert exit_code(judged) is ExitCode.CHECK_FAILED
    # Staging launches nothing on either side.
    assert changes(judge_static(head, head)) == {}
    assert changes(judge_static(head, base))["step", "case", "launches"] is Verdict.SLOWER


def test_a_case_that_neither_side_can_run_is_named():
    sides = made_up(), made_up()
    for side in sides:
        side.cases.append(CensusCase(name="sharded", workload="def"))
    judged = judge_static(*sides)
    assert judged.facts[-1] == (
        "fused runs sharded on neither side: it lacks a feature that is needed."
    )
    assert exit_code(judged) is ExitCode.OK


LARGE = ("gather", "*i32", 255, 64)  # name, signature, registers, spills


@pytest.mark.parametrize(
    ("base", "head", "registers", "spills"),
    [
        ([("gather", "*i64", 24, 0)], [("gather", "*i64", 255, 64)], (24, 255), (0, 64)),
        ([("gather", "*i64", 24, 0)], [("gather", "*i64:16", 255, 64)], (24, 255), (0, 64)),
        ([("slots", "*i64", 24, 0)], [("slots_v2", "*i64", 255, 64)], (24, 255), (0, 64)),
        ([("slots", "*i64", 24, 0)], [("slots_v2", "*i64", 24, 0)], (255, 255), (64, 64)),
        ([("slots", "*i64", 255, 9)], [("slots_v2", "*i64", 24, 0)], (255, 24), (9, 0)),
        ([], [("more", "*i64", 24, 0)], (255, 255), (64, 64)),
        (
            [("gather", "*i64", 99, 0), ("slots", "*i64", 20, 0)],
            [("slots", "*i64", 99, 0), ("gather", "*i64", 20, 0)],
            (20, 99),
            (64, 64),
        ),
    ],
    ids=["specialisation", "other arguments", "renamed", "alike", "better", "new", "swapped"],
)
def test_no_kernel_hides_behind_one_that_has_as_much(base, head, registers, spills):
    sides = [
        CensusOperation(
            OperationCensus.model_construct(steps=[]),
            tuple(
                Kernel.model_construct(
                    name=name, signature=signature, registers=count, spill_bytes=size
                )
                for name, signature, count, size in (LARGE, *kernels)
            ),
        )
        for kernels in (base, head)
    ]
    figures = figures_of(*sides)
    assert (figures[REGISTERS].base, figures[REGISTERS].head) == registers
    assert (figures[SPILLS].base, figures[SPILLS].head) == spills


def test_launches_are_those_of_a_step():
    judged = judge_static(made_up(launches=(2, 4)), made_up(launches=(2, 5)))
    launches = judged.judgements[0]
    assert (launches.base_value, launches.other_value) == (3, 3.5)
    assert launches.verdict is Verdict.SLOWER
    moved = judge_static(made_up(launches=(2, 4)), made_up(launches=(4, 2))).judgements[0]
    assert moved.verdict is Verdict.SAME
    assert moved.detail.endswith("in other steps")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"toolchain": toolchain(triton="3.6.0")}, "Triton 3.9.0 against 3.6.0"),
        ({"toolchain": toolchain(ptxas="12.9")}, "ptxas for sm_90 13.4.59 against 12.9"),
        ({"toolchain": toolchain(A="1")}, "A absent against 1"),
        (
            {"cases": [CensusCase(name="case", workload="def")]},
            "the workload of case 'case'",
        ),
    ],
)
def test_what_is_not_comparable_is_refused(changed, why):
    with pytest.raises(NotComparableError) as caught:
        judge_static(made_up(), made_up(**changed), "main", "worktree")
    assert str(caught.value).startswith(f"main and worktree are not comparable: {why}")


def test_nothing_in_common_is_refused():
    with pytest.raises(NotComparableError, match="no variant, operation and case in common"):
        judge_static(made_up(), made_up(variants=[]))
    with pytest.raises(NotComparableError, match="no variant, operation and case in common"):
        judge_static(made_up(variants=[]), made_up(variants=[]))
    assert not equal_launches(
        made_up(), made_up(toolchain=toolchain("3.6.0")), "fused", "case", ops.STEP
    )
