"""Smaller scenarios are legal, and the smallest that still fails is found."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from bt_bench.protocol import Source
from bt_bench.suites.block_tables.exploring.calls import (
    CAPTURED_STEPS,
    GATHER,
    Batch,
    Publish,
    Restore,
    Run,
    Scenario,
    Snapshot,
    Stage,
    Write,
    flat,
)
from bt_bench.suites.block_tables.exploring.extremes import EXTREMES
from bt_bench.suites.block_tables.exploring.generate import make
from bt_bench.suites.block_tables.exploring.shrink import is_legal, smaller
from bt_bench.suites.block_tables.exploring.shrink_layouts import smaller_layouts
from bt_kernels.layout import FEATURES, TableLayout

LAYOUT = TableLayout((4,), (2,), 2, 8)


def made(number: int) -> Scenario:
    return make(Source(3, number, FEATURES | {CAPTURED_STEPS}, (5,)))


def check_batch(batch: Batch, layout: TableLayout) -> None:
    tokens = int(batch.starts[-1])
    assert len(batch.rows) <= batch.reqs <= layout.max_num_reqs
    assert tokens <= batch.tokens
    assert batch.has_own_slots or batch.tokens <= layout.max_num_batched_tokens
    assert tokens <= len(batch.positions)
    if batch.computed is not None:
        assert len(batch.computed) == layout.max_num_reqs


@pytest.mark.parametrize("number", [*range(2, 42, 5), *range(42, 72, 3)])
def test_smaller_ones_are_legal(number: int) -> None:
    whole = made(number)
    # Those with smaller layouts among the first, and a few of all the others.
    for candidate in [*islice(smaller(whole), 0, 40, 4), *islice(smaller_layouts(whole), 40)]:
        if not is_legal(candidate):  # as some of smaller layouts, which are left out then
            continue
        for call in flat(candidate.calls):
            layout = candidate.layouts[call.table]
            batches = (getattr(call, name, None) for name in ("batch", "replay", "step"))
            for batch in batches:
                if batch is not None:
                    check_batch(batch, layout)
            if isinstance(call, Stage):
                assert all(len(write.block_ids) == layout.num_groups for write in call.writes)
                assert all(write.row < layout.max_num_reqs for write in call.writes)


def test_tokens_beyond_the_layout_stay_with_slots_of_their_own() -> None:
    """Calls without them would be refused."""
    (beyond,) = [n for n, one in enumerate(EXTREMES) if one.theme == "more tokens than the layout"]
    for candidate in islice(smaller(made(beyond)), 3_000):
        for call in candidate.calls:
            if isinstance(call, Run):
                check_batch(call.batch, candidate.layouts[call.table])


def test_all_that_is_yielded_is_legal_and_comes_in_the_same_order_again() -> None:
    whole = made(47)
    first, second = (list(islice(smaller(whole), 150)) for _ in range(2))
    assert all(map(is_legal, first))
    assert [str(one) for one in first] == [str(one) for one in second]


def test_layouts_become_smaller_in_each_direction() -> None:
    options = {
        "slot_mapping_enabled": (True, False, True),
        "cp_size": 2,
        "sliding_window_reach": (3, 0, 0),
    }
    layout = TableLayout((16, 64, 16), (9, 30, 2), 12, 70, **options)
    write = Write(7, ((1, 2), (3,), ()), overwrite=True)
    batch = Batch(np.array([7, 9]), np.array([0, 1, 3]), np.array([0, 5, 70]), 5, 40)
    calls = (Stage(0, (write,)), Run(0, GATHER, batch))
    scenario = replace(made(0), layouts=(layout,), calls=calls)
    found = [one.layouts[0] for one in smaller(scenario) if one.layouts != (layout,)]
    assert {one.num_groups for one in found} >= {1, 2, 3}
    assert min(one.max_num_reqs for one in found) == 2
    assert min(one.max_num_batched_tokens for one in found) == 3
    assert min(one.widths[0] for one in found if one.num_groups == 3) == 2
    assert any(one.cp_size == 1 for one in found)
    assert any(all(one.slot_mapping_enabled) for one in found if one.num_groups == 3)
    assert any(not any(one.sliding_window_reach) for one in found)


def test_the_smallest_is_found() -> None:
    """A scenario fails if it gathers row 1 after a write to it."""

    def fails(scenario: Scenario) -> bool:
        written = False
        for call in scenario.calls:
            if isinstance(call, Stage):
                written |= any(write.row == 1 for write in call.writes)
            if isinstance(call, Run) and call.method == GATHER and written and 1 in call.batch.rows:
                return True
        return False

    scenario = next(one for one in map(made, range(47, 100)) if fails(one))
    improved = True
    while improved:
        improved = False
        for candidate in smaller(scenario):
            if fails(candidate):
                scenario, improved = candidate, True
                break
    assert len(scenario.calls) == 2
    stage, run = scenario.calls
    assert isinstance(stage, Stage)
    assert isinstance(run, Run)
    assert [write.row for write in stage.writes] == [1]
    assert list(run.batch.rows) == [1]
    assert scenario.garbage is None
    layout = scenario.layouts[run.table]
    assert layout.num_groups == 1
    assert layout.max_num_reqs <= 2
    assert layout.widths == (1,)


@pytest.mark.parametrize(
    ("calls", "legal"),
    [
        ((Stage(0, (Write(0, ((1, 2),), overwrite=False),)),), True),
        ((Stage(0, (Write(0, ((1, 2, 3),), overwrite=False),)),), False),
        ((Restore(0, 0),), False),
        ((Snapshot(0, 0), Restore(0, 0)), True),
        ((Stage(0, (Write(0, ((1,),), overwrite=False),)), Snapshot(0, 0)), True),
        ((Publish(0, 0, ()),), False),
    ],
)
def test_is_legal(calls: tuple[Stage, ...], legal: bool) -> None:
    assert is_legal(replace(made(0), layouts=(LAYOUT,), calls=calls)) is legal
