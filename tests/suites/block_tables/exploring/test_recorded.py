"""Recorded calls become scenarios in excerpts, which begin with the tables of their time."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
import torch
from support.recorded import record, write

from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.exploring import recorded
from bt_bench.suites.block_tables.exploring.calls import (
    BOTH,
    GATHER,
    SLOTS,
    STEP,
    Apply,
    Empty,
    Load,
    Mark,
    Run,
    SetFlag,
    Stage,
)
from bt_bench.suites.block_tables.exploring.player import TablePlayer
from bt_bench.suites.block_tables.exploring.recorded import AS_RECORDED, FUSED, RecordedTables
from bt_bench.suites.block_tables.exploring.tame import TAMED
from bt_bench.variants.catalogue import load_reference
from bt_kernels.engines.recordings import Frame, Snapshot
from bt_kernels.layout import CUSTOM_OUTPUTS, DISABLED_GROUPS, SLIDING_WINDOW, TableLayout

LAYOUT = TableLayout((4, 8), (3, 2), max_num_reqs=4, max_num_batched_tokens=16)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return record(tmp_path_factory.mktemp("recorded"), 60).path


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(recorded, "EXCERPT_STEPS", 7)


def marks(scenario):
    return [call.step for call in scenario.calls if isinstance(call, Mark)]


def contents(scenario):
    """The buffers after the last call, as the reference has them, and the source tables alone."""
    *_, last = TablePlayer().play(load_reference(), scenario, CPU, None)
    return {name: value for name, value in last.items() if name.startswith("block_tables")} | {
        "num_blocks": last["num_blocks"]
    }


def test_all_steps_are_in_the_excerpts(path, short):
    tables = RecordedTables(path)
    assert tables.steps == 60
    assert tables.features == {SLIDING_WINDOW, DISABLED_GROUPS, CUSTOM_OUTPUTS}
    excerpts = list(tables.excerpts(0, None))
    assert [excerpt.steps for excerpt in excerpts] == [7] * 8 + [4]
    for way in (AS_RECORDED, FUSED):
        steps = [step for excerpt in excerpts for step in marks(excerpt.ways[way])]
        assert steps == list(range(60))


def test_an_excerpt_begins_with_the_tables_of_its_time(path, short):
    """Played one after the other, excerpts end with the tables that a single one ends with."""
    several = list(RecordedTables(path).excerpts(0, None))
    with patch.object(recorded, "EXCERPT_STEPS", 1000):
        (whole,) = RecordedTables(path).excerpts(0, None)
    assert isinstance(several[-1].ways[AS_RECORDED].calls[1], Load)
    expected = contents(whole.ways[AS_RECORDED])
    for way in (AS_RECORDED, FUSED):
        found = contents(several[-1].ways[way])
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_a_part_of_a_recording(path, short):
    excerpts = list(RecordedTables(path).excerpts(20, 10))
    assert [excerpt.steps for excerpt in excerpts] == [7, 3]
    assert [marks(excerpt.ways[FUSED])[0] for excerpt in excerpts] == [20, 27]


def test_one_way_makes_the_recorded_calls_and_one_fuses_them(path):
    (excerpt,) = RecordedTables(path).excerpts(0, None)
    counts = {}
    for way, scenario in excerpt.ways.items():
        methods = [call.method for call in scenario.calls if isinstance(call, Run)]
        counts[way] = {name: methods.count(name) for name in (GATHER, SLOTS, STEP, BOTH)}
        counts[way]["apply"] = sum(isinstance(call, Apply) for call in scenario.calls)
        stages = [call for call in scenario.calls if isinstance(call, Stage)]
        assert {call.many for call in stages} == {way == FUSED}
        assert max(len(call.writes) for call in stages) > 1
        assert any(isinstance(call, Empty) for call in scenario.calls)
        assert any(isinstance(call, SetFlag) for call in scenario.calls)
        pairs = pairwise(scenario.calls)
        assert not any(isinstance(a, Stage) and isinstance(b, Stage) for a, b in pairs)
    steps = counts[FUSED][STEP]
    assert steps > 20
    for name in (GATHER, SLOTS, "apply"):
        assert counts[AS_RECORDED][name] - counts[FUSED][name] == steps


def test_a_place_is_found_in_the_file(path, short):
    tables = RecordedTables(path)
    *_, excerpt = tables.excerpts(0, None)
    scenario = excerpt.ways[AS_RECORDED]
    calls = [call for call in scenario.calls if not isinstance(call, Mark)]
    assert tables.located(scenario, 0) == (56, str(calls[0]))
    step, text = tables.located(scenario, len(calls) - 1)
    assert step in (58, 59)
    assert text == str(calls[-1])


def test_an_opponent_gets_the_same_contents_and_marks(path, short):
    tables = RecordedTables(path)
    *_, excerpt = tables.excerpts(0, None)
    for scenario in excerpt.ways.values():
        adapted = tables.adapted(scenario, TAMED)
        assert marks(adapted) == marks(scenario)
        (load,), (wanted,) = (
            [call for call in each.calls if isinstance(call, Load)] for each in (adapted, scenario)
        )
        assert all(map(np.array_equal, load.block_tables, wanted.block_tables))
        assert tables.adapted(scenario, frozenset()) is scenario


def test_full_tables_are_loaded_whole(tmp_path):
    """Stale columns, input tables and dirty rows too, or a difference might not show again."""
    rng = np.random.default_rng(1)
    sources, inputs = (
        tuple(rng.integers(1, 99, (4, width)) for width in LAYOUT.widths) for _ in range(2)
    )
    frame = Frame()
    frame.snapshot(Snapshot(np.array([[2, 0, 0, 1], [1, 0, 0, 0]]), sources, inputs, 3))
    frame.begin_step()
    frame.apply()
    (excerpt,) = RecordedTables(write(tmp_path / "full.btrec", LAYOUT, frame)).excerpts(0, None)
    (seen, *_) = TablePlayer().play(load_reference(), excerpt.ways[AS_RECORDED], CPU, None)
    for group in range(2):
        assert np.array_equal(seen[f"block_tables[{group}]"], sources[group])
        assert np.array_equal(seen[f"input_block_tables[{group}]"], inputs[group])
    assert seen["num_blocks"].tolist() == [[2, 0, 0, 1], [1, 0, 0, 0]]
    assert seen["num_dirty_rows"] == 3


def test_writes_that_are_staged_across_steps_stay_in_one_excerpt(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "EXCERPT_STEPS", 1)
    frame = Frame()
    for number in range(4):
        frame.begin_step()
        frame.append(number, ([number + 1], [9]), overwrite=True)
        if number % 2:
            frame.apply()
    tables = RecordedTables(write(tmp_path / "staged.btrec", LAYOUT, frame))
    assert [excerpt.steps for excerpt in tables.excerpts(0, None)] == [2, 2]
    (later,) = tables.excerpts(1, 1)
    stage = later.ways[AS_RECORDED].calls[1]
    assert isinstance(stage, Stage)
    assert [write.row for write in stage.writes] == [0, 1]


def test_no_variant_of_the_suite_takes_tables_without_groups(tmp_path):
    frame = Frame()
    frame.begin_step()
    frame.append(0, (), overwrite=True)
    frame.apply()
    path = write(tmp_path / "encoder.btrec", TableLayout((), (), 4, 40), frame)
    assert RecordedTables(path).features == {"tables without groups"}


def test_a_recording_without_a_step_is_refused(tmp_path):
    frame = Frame()
    frame.redirect(True)
    with pytest.raises(UsageError, match="holds no calls; expected those of a step or more"):
        RecordedTables(write(tmp_path / "none.btrec", LAYOUT, frame))


def test_a_recording_whose_only_frame_was_cut_off_says_so(tmp_path):
    frame = Frame()
    frame.dummy_tables(1)
    path = write(tmp_path / "cut.btrec", LAYOUT, frame)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"holds no calls; .*the last frame is incomplete"):
        RecordedTables(path)


def test_calls_outside_of_execute_model_are_a_step_of_their_own(tmp_path):
    frame = Frame()
    frame.dummy_tables(1)
    path = tmp_path / "outside.btrec"
    assert RecordedTables(write(path, LAYOUT, frame)).steps == 1
    frame.dummy_tables(1)
    for _ in range(2):
        frame.begin_step()
        frame.apply()
    (excerpt,) = RecordedTables(write(path, LAYOUT, frame)).excerpts(0, None)
    assert marks(excerpt.ways[AS_RECORDED]) == [0, 1, 2]
    assert excerpt.steps == 3
