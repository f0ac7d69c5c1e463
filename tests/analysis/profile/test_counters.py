"""What counters say of kernels, and what has changed."""

from __future__ import annotations

import pytest
from support.factories import make_environment, make_gpu
from support.ncu import counters, kernel_counters

from bt_bench.analysis.profile import (
    DRAM,
    L2,
    PCIE,
    counter_changes,
    counter_rows,
    stall_shares,
    times_required,
    total,
)
from bt_bench.base.errors import NotComparableError
from bt_bench.results import Cache, Reason, ReasonCode, VariantCounters


def fused(*kernels):
    return VariantCounters(name="fused", kernels=list(kernels))


def test_figures_are_medians_and_a_kernel_that_comes_again_has_a_number():
    rows = counter_rows(
        fused(kernel_counters("a", (4.0, 9.0, 4.2)), kernel_counters("b"), kernel_counters("a"))
    )
    assert [row.label for row in rows] == ["a #1", "b", "a #2"]
    assert rows[0].us == pytest.approx(4.2)
    assert rows[0].gb_per_s(L2) == pytest.approx(40_960 / 4_200)


def test_the_sum_over_kernels_against_what_is_required():
    made = counters(fused(kernel_counters("a", l2=20_480), kernel_counters("b", l2=10_240)))
    rows = counter_rows(made.variants[0])
    assert total(rows, L2) == 30_720
    assert times_required(total(rows, L2), made) == 3.0
    assert times_required(total(rows, DRAM), made) == 0.2


def test_a_sum_is_unknown_where_one_kernel_lacks_a_counter():
    one, other = kernel_counters("a", pcie_read_bytes=64, pcie_written_bytes=0), kernel_counters()
    assert total(counter_rows(fused(one)), PCIE) == 64
    assert total(counter_rows(fused(one, other)), PCIE) is None
    assert total([], L2) is None
    made = counters(fused(one), read_bytes=None)
    assert times_required(30_720, made) is None
    assert times_required(None, counters(fused(one))) is None


def test_what_limits_occupancy():
    limits = {"limit_registers": 4.0, "limit_warps": 16.0, "limit_blocks": 32.0}
    (few,) = counter_rows(fused(kernel_counters(waves=0.5, **limits)))
    assert few.limiters == ("too few programs",)
    (many,) = counter_rows(fused(kernel_counters(waves=3.0, **limits)))
    assert many.limiters == ("registers",)
    (both,) = counter_rows(fused(kernel_counters(waves=3.0, **limits | {"limit_warps": 4.0})))
    assert both.limiters == ("registers", "warps")
    (unknown,) = counter_rows(fused(kernel_counters(waves=3.0)))
    assert unknown.limiters == ()


def test_stalls_are_shares_of_all_samples():
    stalls = (("long_scoreboard", "a.py:1", 40), ("wait", None, 20), ("barrier", "a.py:2", 1))
    shares = stall_shares(kernel_counters(stalls=stalls), 2)
    assert [(s.reason, s.place, s.share) for s in shares] == [
        ("long scoreboard", "a.py:1", 0.4),
        ("wait", None, 0.2),
    ]


def changes_of(before, after):
    found = counter_changes(counters(before), counters(after))
    return [(change.where, change.what, change.more) for change in found]


def test_only_what_differs_by_more_than_it_scatters_has_changed():
    was = fused(kernel_counters("a", (4.0, 4.2, 4.4)))
    assert changes_of(was, was) == []
    assert changes_of(was, fused(kernel_counters("a", (4.3, 4.6, 4.7)))) == []
    assert changes_of(was, fused(kernel_counters("a", (4.41, 4.41, 4.41)))) == [
        ("a", "duration in ns", True)
    ]
    assert changes_of(was, fused(kernel_counters("a", (4.0, 4.2, 4.4), l2=41_000))) == []
    assert changes_of(was, fused(kernel_counters("a", (4.0, 4.2, 4.4), l2=81_920))) == [
        ("a", "bytes moved through the L2", True)
    ]


def test_what_is_exact_has_changed_by_one():
    was, now = kernel_counters("a"), kernel_counters("a", registers=33.0)
    (change,) = counter_changes(counters(fused(was)), counters(fused(now)))
    assert (change.what, change.before, change.after) == ("registers of a thread", "32", "33")
    limited = kernel_counters("a", waves=2.0, limit_registers=4.0)
    (change,) = counter_changes(counters(fused(was)), counters(fused(limited)))
    assert (change.before, change.after) == ("too few programs", "registers")


def test_kernels_that_are_new_or_gone_and_what_became_more_comes_first():
    before = fused(kernel_counters("gone"), kernel_counters("a", registers=40.0))
    after = fused(kernel_counters("a"), kernel_counters("new"))
    assert changes_of(before, after) == [
        ("new", "is launched", True),
        ("a", "registers of a thread", False),
        ("gone", "is launched", False),
    ]
    reason = Reason(code=ReasonCode.RAISED, message="it broke")
    broken = VariantCounters(name="fused", reason=reason)
    assert changes_of(before, broken) == [("–", "fails", True)]
    assert changes_of(broken, before) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"environment": make_environment(gpus=[make_gpu("H100")])}, "the GPU is NVIDIA H200"),
        ({"digest": "b" * 64}, "the workload is one"),
        ({"step": 0}, "the step is 1 in before and 0 in now"),
        ({"l2": Cache.COLD}, "the L2 cache is hot in before and cold in now"),
        ({"variants": [VariantCounters(name="other")]}, "no variant in common"),
    ],
)
def test_profiles_that_cannot_be_compared(fields, expected):
    before = counters(fused(kernel_counters()))
    with pytest.raises(NotComparableError, match=expected):
        counter_changes(before, before.model_copy(update=fields))
