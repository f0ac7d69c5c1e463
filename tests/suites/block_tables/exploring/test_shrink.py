"""Smaller scenarios are legal, and the smallest that still fails is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bt_bench.protocol import Source
from bt_bench.suites.block_tables.exploring.calls import (
    CAPTURED_STEPS,
    GATHER,
    Publish,
    Restore,
    Run,
    Scenario,
    Snapshot,
    Stage,
    Write,
)
from bt_bench.suites.block_tables.exploring.generate import make
from bt_bench.suites.block_tables.exploring.shrink import is_legal, smaller
from bt_kernels.layout import FEATURES, TableLayout

LAYOUT = TableLayout((4,), (2,), 2, 8)


def made(number: int) -> Scenario:
    return make(Source(3, number, FEATURES | {CAPTURED_STEPS}, (5,)))


@pytest.mark.parametrize("number", range(0, 30, 3))
def test_smaller_ones_are_legal(number: int) -> None:
    for index, candidate in enumerate(smaller(made(number))):
        assert is_legal(candidate)
        if index > 60:
            break


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

    scenario = next(one for one in map(made, range(100)) if fails(one))
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
