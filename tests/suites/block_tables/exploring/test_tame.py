"""Scenarios of opponents do without what these leave undefined."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from bt_bench.protocol import Source
from bt_bench.suites.block_tables.exploring.calls import (
    STEP,
    Apply,
    Dummies,
    Refused,
    Renew,
    Restore,
    Run,
    Scenario,
    SetFlag,
    Stage,
)
from bt_bench.suites.block_tables.exploring.explorer import TableExplorer
from bt_bench.suites.block_tables.exploring.generate import make
from bt_bench.suites.block_tables.exploring.schedule import SCENARIOS, theme_of
from bt_bench.suites.block_tables.exploring.shrink import is_legal, smaller
from bt_bench.suites.block_tables.exploring.tame import TAMED, is_tame, tamed
from bt_bench.suites.block_tables.vllm.differences import ROWS_KEPT, OpponentTables
from bt_kernels.layout import FEATURES, TableLayout

MIXED = next(number for number in count() if theme_of(number) == "mixed")


class New(OpponentTables):
    differences = TAMED


class Old(OpponentTables):
    differences = TAMED | {ROWS_KEPT}


@pytest.fixture(autouse=True)
def adapted(monkeypatch):
    """Count both as loaded from entries of opponents."""
    monkeypatch.setattr("bt_bench.variants.catalogue._ADAPTED", {New, Old})


@pytest.mark.parametrize("number", range(0, SCENARIOS, 2))
def test_nothing_undefined_is_left(number):
    scenario = tamed(make(Source(3, number, FEATURES)), TAMED)
    pending = {}
    assert all(max(layout.tokens_per_block) < 2**31 for layout in scenario.layouts)
    for call in scenario.calls:
        layout = scenario.layouts[call.table]
        assert not isinstance(call, (Refused, SetFlag))
        if call.table not in pending:
            assert isinstance(call, Dummies)
        rows = pending.setdefault(call.table, set())
        match call:
            case Stage():
                for write in call.writes:
                    assert write.row not in rows
                    rows.add(write.row)
                    for ids, size in zip(write.block_ids, layout.block_sizes, strict=True):
                        assert all(0 <= one * size < 2**31 for one in ids)
            case Apply() | Restore():
                rows.clear()
            case Renew():
                del pending[call.table]
            case Run():
                if call.method == STEP:
                    rows.clear()
                groups = zip(
                    layout.widths,
                    layout.tokens_per_block,
                    layout.slot_mapping_enabled,
                    strict=True,
                )
                longest = min((w * b for w, b, enabled in groups if enabled), default=1)
                assert ((call.batch.positions >= 0) & (call.batch.positions < longest)).all()
                assert call.batch.pointers


@pytest.mark.parametrize("features", [FEATURES, frozenset[str]()])
@pytest.mark.parametrize("seed", [0, 3])
def test_a_tame_scenario_is_legal(seed, features):
    made = [tamed(make(Source(seed, number, features)), TAMED) for number in range(SCENARIOS)]
    assert [number for number, scenario in enumerate(made) if not is_legal(scenario)] == []
    assert any(isinstance(call, Renew) for scenario in made for call in scenario.calls)


def test_what_is_tame_stays_as_it_is_and_smaller_ones_are_tame_too():
    scenario = tamed(make(Source(3, MIXED, FEATURES)), TAMED)
    assert is_tame(scenario)
    again = tamed(scenario, TAMED)
    assert len(again.calls) == len(scenario.calls)
    found = [candidate for _, candidate in zip(range(50), smaller(scenario), strict=False)]
    assert found
    assert all(map(is_tame, found))


def test_blocks_too_large_for_int32_are_not_shared_among_ranks_nor_become_so_when_made_smaller():
    layout = TableLayout((2**30, 2**29, 16), (1, 1, 4), 2, 8, cp_size=3, cp_rank=1)
    (made,) = tamed(Scenario("", (layout,), ()), TAMED).layouts
    assert made == replace(layout, dcp_sharded=(False, True, True))
    assert is_tame(Scenario("", (made,), (), without=TAMED))
    assert not is_tame(Scenario("", (layout,), (), without=TAMED))


def test_variants_of_the_project_are_not_tamed():
    scenario = make(Source(3, MIXED, FEATURES))
    assert tamed(scenario, FEATURES) is scenario


def test_an_opponent_says_by_its_differences_what_its_scenarios_do_without():
    explorer = TableExplorer()
    assert explorer.abilities(New) == TAMED
    assert explorer.unexplored(New) == ""
    assert ROWS_KEPT in explorer.unexplored(Old)
    source = Source(3, 1, FEATURES | TAMED)
    assert explorer.scenario(source).without == TAMED
    assert np.all([not isinstance(c, Refused) for c in explorer.scenario(source).calls])
