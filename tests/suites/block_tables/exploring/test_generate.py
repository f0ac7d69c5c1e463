"""Scenarios are legal, the same each time, and need no feature beyond those given."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from bt_bench.protocol import Source
from bt_bench.suites.block_tables.exploring.calls import (
    CAPTURED_STEPS,
    Capture,
    Publish,
    Refused,
    Run,
    Scenario,
    Stage,
)
from bt_bench.suites.block_tables.exploring.generate import make
from bt_bench.suites.block_tables.exploring.shrink import is_legal
from bt_bench.suites.block_tables.exploring.themes import THEMES
from bt_kernels.layout import CUSTOM_OUTPUTS, DUMMY_REQUESTS, FEATURES, SLIDING_WINDOW

NUMBERS = range(2 * len(THEMES))
ABILITIES = FEATURES | {CAPTURED_STEPS}
SIZES = (3, 64, 256, 1000)


def scenario(number: int, features: frozenset[str] = ABILITIES, *, deep: bool = False) -> Scenario:
    return make(Source(7, number, features, SIZES, deep))


@pytest.mark.parametrize("number", NUMBERS)
def test_scenarios_are_legal(number: int) -> None:
    made = scenario(number)
    assert is_legal(made)
    assert made.calls
    for call in made.calls:
        layout = made.layouts[call.table]
        if not isinstance(call, (Run, Capture)):
            continue
        batch = call.batch
        assert len(batch.starts) == len(batch.rows) + 1
        assert batch.starts[0] == 0
        assert (np.diff(batch.starts) >= 0).all()
        tokens = int(batch.starts[-1])
        assert tokens <= len(batch.positions)
        assert tokens <= batch.tokens <= layout.max_num_batched_tokens
        assert len(batch.rows) <= batch.reqs <= layout.max_num_reqs
        assert ((batch.rows >= -1) & (batch.rows < layout.max_num_reqs)).all()


def test_a_source_makes_one_scenario() -> None:
    first, second = scenario(0), scenario(0)
    assert pickle.dumps(first) == pickle.dumps(second)
    assert pickle.dumps(first) != pickle.dumps(scenario(10))


@pytest.mark.parametrize("number", NUMBERS)
def test_no_feature_is_needed_that_is_not_there(number: int) -> None:
    made = scenario(number, frozenset())
    assert all(not layout.features for layout in made.layouts)
    for call in made.calls:
        assert not isinstance(call, (Capture, Publish))
        if isinstance(call, Run):
            assert call.batch.out is None
            assert call.batch.computed is None
            assert (call.batch.rows >= 0).all()


def test_everything_is_reached() -> None:
    made = [scenario(number) for number in range(4 * len(THEMES))]
    calls = [call for one in made for call in one.calls]
    kinds = {type(call).__name__ for call in calls}
    assert kinds == {
        *("Stage", "Apply", "Run", "Dummies", "Snapshot", "Restore", "SetFlag", "Refused"),
        *("Capture", "Publish"),
    }
    runs = [call for call in calls if isinstance(call, Run)]
    assert len({call.method for call in runs}) == 4
    assert {call.batch.out for call in runs} == {None, 0, 1, 2}
    assert any(call.batch.computed is not None for call in runs)
    assert any((call.batch.rows == -1).any() for call in runs)
    assert any(call.same_tensors for call in runs)
    assert len({call.what for call in calls if isinstance(call, Refused)}) > 40
    assert len({call.form for call in calls if isinstance(call, Stage)}) == 4
    features = frozenset[str]().union(*(layout.features for one in made for layout in one.layouts))
    assert features | {CUSTOM_OUTPUTS, DUMMY_REQUESTS} == FEATURES
    assert SLIDING_WINDOW in features


def test_sizes_that_the_code_names_are_used() -> None:
    widths = set()
    for number in range(1, 120, 2):
        assert THEMES[number % len(THEMES)] == "named sizes"
        made = scenario(number)
        if made.theme.startswith(("columns", "ids")):
            widths |= {max(layout.widths) for layout in made.layouts}
    # The number itself or one beside it, perhaps with some room behind it, or as much again.
    for size in (256, 1000):
        near = {size + more + beside for more in (0, 9, size) for beside in (-1, 0, 1, 2)}
        assert near & widths, size


def test_deep_scenarios_are_larger() -> None:
    quick = [len(scenario(number).calls) for number in range(len(THEMES))]
    deep = [len(scenario(number, deep=True).calls) for number in range(len(THEMES))]
    assert sum(deep) > sum(quick)
