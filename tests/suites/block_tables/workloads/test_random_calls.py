"""Workloads of random calls: legal, and with the options that were asked for."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from support.legality import assert_legal

from bt_bench.suites.block_tables.workloads.conformance.plain import CORNERS
from bt_bench.suites.block_tables.workloads.conformance.random_calls import random_workload
from bt_kernels.layout import TableLayout


@st.composite
def layouts(draw: st.DrawFn) -> TableLayout:
    groups = draw(st.integers(1, 4))

    def each(values: st.SearchStrategy) -> st.SearchStrategy:
        return st.tuples(*[values] * groups)

    plain = TableLayout(
        draw(each(st.sampled_from([2, 6, 16, 262_144]))),
        draw(each(st.integers(1, 40))),
        max_num_reqs=draw(st.integers(1, 6)),
        max_num_batched_tokens=draw(st.integers(1, 64)),
        slot_mapping_enabled=draw(each(st.booleans())),
        dcp_sharded=draw(each(st.booleans())),
    )
    if draw(st.booleans()):
        return replace(plain, cp_size=draw(st.integers(2, 4)), cp_interleave=2, cp_rank=1)
    return replace(plain, sliding_window_reach=draw(each(st.integers(0, 20))))


@settings(max_examples=60, deadline=None)
@given(layouts(), st.integers(0, 2**32), st.booleans(), st.booleans(), st.booleans())
def test_random_workloads_are_legal(layout, seed, full, dummies, custom_outputs):
    workload = random_workload(
        seed, layout, 3, full=full, dummies=dummies, custom_outputs=custom_outputs
    )
    assert_legal(workload)
    given_windows = any(step.num_computed_tokens is not None for step in workload.steps)
    assert given_windows <= any(layout.sliding_window_reach)
    assert all((-1 in step.idx_mapping) == dummies for step in workload.steps)
    assert workload.custom_outputs == custom_outputs


def test_dummies_take_the_place_of_requests_and_change_nothing_else():
    plain = random_workload(3, CORNERS, num_steps=4)
    for before, after in zip(
        plain.steps, random_workload(3, CORNERS, num_steps=4, dummies=True).steps, strict=True
    ):
        assert before.positions.tolist() == after.positions.tolist()
        assert before.appends == after.appends
        kept = after.idx_mapping != -1
        assert before.idx_mapping[kept].tolist() == after.idx_mapping[kept].tolist()
