"""Scenarios played on shipped variants, and on wrong ones that only some of that shows."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
import torch
from support.variants import SHIPPED, classes

from bt_bench.protocol import Source, default_suite
from bt_bench.suites.block_tables.exploring.arguments import Outputs
from bt_bench.suites.block_tables.exploring.calls import Capture, Publish, Run
from bt_bench.suites.block_tables.exploring.explorer import TableExplorer
from bt_bench.suites.block_tables.exploring.extremes import EXTREMES, LARGER
from bt_bench.suites.block_tables.exploring.generate import make
from bt_bench.suites.block_tables.exploring.schedule import SCENARIOS, theme_of
from bt_bench.worker import Play
from bt_bench.worker.checking.interpreted_graph import InterpretedGraph
from bt_bench.worker.checking.playing import play
from bt_kernels.layout import FEATURES, TableLayout
from bt_kernels.variants.reference import Variant as Reference

pytestmark = pytest.mark.usefixtures("device")
SUITE = default_suite()
CPU = torch.device("cpu")
ABILITIES = FEATURES | {"captured_steps"}


def scenario(number, *, deep=False):
    return make(Source(5, number, ABILITIES, (), deep))


def differs(variant, scenarios, device=CPU):
    """Names of what a variant shows otherwise than the reference, and reasons."""
    task = Play(tuple(scenarios))
    found = play(task, SUITE, "it", variant, device)
    wanted = play(task, SUITE, None, None, CPU)
    names = set()
    for one, other in zip(found, wanted, strict=True):
        if one.reason is not None:
            names.add(one.reason.message)
        for seen, right in zip(one.digests, other.digests, strict=False):
            names |= {name for name, value in right.items() if seen.get(name) != value}
    return names


def first_of(theme):
    """The first scenario of a theme."""
    return next(number for number in itertools.count() if theme_of(number) == theme)


@cache
def with_captures(count):
    """Scenarios that publish for captured steps, and replay, restore, or neither."""
    numbers = (number for number in itertools.count() if theme_of(number) == "captured steps")
    made = map(scenario, numbers)
    publishing = (one for one in made if any(isinstance(call, Publish) for call in one.calls))
    return list(itertools.islice(publishing, count))


def test_captured_steps_are_replayed_restored_over_and_left():
    ends = {
        (call.replay is not None, call.restored is not None, call.step is not None)
        for made in with_captures(6)
        for call in made.calls
        if isinstance(call, Publish)
    }
    assert ends == {
        *((True, False, False), (False, True, False), (False, False, True)),
        (False, False, False),
    }


def test_a_replay_has_the_sizes_of_its_capture():
    for made in with_captures(4):
        captured = {}
        for call in made.calls:
            if isinstance(call, Capture):
                captured[call.table, call.key] = call.batch
            if isinstance(call, Publish) and call.replay is not None:
                first, then = captured[call.table, call.key], call.replay
                assert len(first.rows) == len(then.rows)
                assert len(first.positions) == len(then.positions)
                assert (first.reqs, first.tokens) == (then.reqs, then.tokens)
                assert (first.computed is None) == (then.computed is None)
                assert then.starts[-1] <= then.tokens


def test_a_right_variant_replays_and_restores():
    shortest = min(with_captures(4), key=lambda made: len(made.calls))
    begun = replace(shortest, calls=shortest.calls[:24])
    assert any(isinstance(call, Publish) for call in begun.calls)
    assert differs(classes(["fused"])["fused"], [begun]) == set()


FUSED = classes(["fused"])["fused"]


class ComputesByTorch(FUSED):
    """Part of a captured step is no kernel, so its replays cannot be made without a GPU."""

    def _launch_captured(self, *batch):
        result = super()._launch_captured(*batch)
        self.slot_mappings.add_(0)
        return result


@pytest.mark.parametrize(("variant", "is_replayed"), [(FUSED, True), (ComputesByTorch, False)])
def test_replays_make_the_launches_of_the_capture_if_these_are_all(
    monkeypatch, variant, is_replayed
):
    replays = []
    replay = InterpretedGraph.replay
    monkeypatch.setattr(
        InterpretedGraph, "replay", lambda graph: (replays.append(graph), replay(graph))
    )
    assert differs(variant, [scenario(first_of("decoding"))]) == set()
    assert bool(replays) is is_replayed


class KnowsLists(Reference):
    """Takes the ids of a list that it has seen for those that the list had then."""

    def append_block_ids(self, row, new_block_ids, overwrite):
        known = self.__dict__.setdefault("known", {})
        # With the object, so that no other one gets its identity.
        both = [known.setdefault((id(one), len(one)), (one, list(one))) for one in new_block_ids]
        super().append_block_ids(row, [ids for _, ids in both], overwrite)


def test_lists_come_again_with_other_ids():
    assert any("block_tables" in name for name in differs(KnowsLists, map(scenario, (2, 3))))


class Notes(Reference):
    """Keeps what it was called with, alive, so that identities are not used again."""

    rows: ClassVar[list[object]] = []
    arrays: ClassVar[list[tuple[np.ndarray, list[int]]]] = []
    outs: ClassVar[list[tuple[torch.Tensor, ...]]] = []

    def append_block_ids(self, row, new_block_ids, overwrite):
        self.rows.append(row)
        self.arrays += [(one, one.tolist()) for one in new_block_ids if hasattr(one, "strides")]
        super().append_block_ids(row, new_block_ids, overwrite)

    def gather_block_tables(self, rows, reqs, out=None, *args, **options):
        self.outs.append(tuple(out or ()))
        return super().gather_block_tables(rows, reqs, out, *args, **options)


@pytest.fixture(scope="module")
def notes():
    differs(Notes, [scenario(number) for number in range(0, SCENARIOS, 2)])
    return Notes


def test_arrays_come_again_with_other_ids_and_some_have_gaps(notes):
    held: dict[int, set[tuple[int, ...]]] = {}
    for array, ids in notes.arrays:
        held.setdefault(id(array), set()).add(tuple(ids))
    assert sum(len(contents) > 1 for contents in held.values()) > 10
    apart = {array.strides[0] // array.itemsize for array, ids in notes.arrays if len(ids) > 1}
    assert apart == {1, 2}


def test_rows_come_as_integers_of_numpy(notes):
    assert {type(row) for row in notes.rows} >= {int, np.int64}


def test_sets_of_outputs_share_their_first_table(monkeypatch):
    """So a variant that knows one by that table would write to another's.

    In a scenario without refusals, whose `out` may share it, too.
    """
    monkeypatch.setattr(Notes, "outs", [])
    (of_sets,) = [n for n, one in enumerate(EXTREMES) if one.theme == "several sets of outputs"]
    differs(Notes, [make(Source(seed, of_sets, ABILITIES, ())) for seed in range(6)])
    others: dict[int, set[tuple[int, ...]]] = {}
    for first, *rest in filter(None, Notes.outs):
        others.setdefault(id(first), set()).add(tuple(map(id, rest)))
    assert any(len(found) > 1 for found in others.values())


def test_slots_of_a_set_begin_amid_their_storage():
    layout = TableLayout((4, 4), (3, 3), 4, 9)
    apart = Outputs(layout, 2, 6, torch.device("cpu"), gaps=True)
    assert apart.slots.storage_offset() > 0
    assert apart.slots.stride() == (11, 1)
    plain = Outputs(layout, 2, 6, torch.device("cpu"), gaps=False)
    assert (plain.slots.storage_offset(), plain.slots.stride()) == (0, (6, 1))


@pytest.mark.parametrize("seed", [0, 3])
def test_a_large_batch_with_a_window_has_outputs_of_the_callers(seed):
    scenarios = (make(Source(seed, number, ABILITIES)) for number in range(SCENARIOS))
    assert any(
        isinstance(call, Run)
        and call.batch.computed is not None
        and call.batch.out is not None
        and any(one.layouts[call.table].reaches)
        and len(call.batch.rows) > 32
        for one in scenarios
        for call in one.calls
    )


def test_explorer_plays_with_this_player():
    assert type(TableExplorer().player()).__name__ == "TablePlayer"


@pytest.mark.gpu
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_variants_on_a_gpu(name):
    scenarios = [scenario(number) for number in range(0, SCENARIOS, 3)]
    far = [scenario(first_of("far rows") + len(LARGER), deep=True)]
    assert far[0].rows_before
    found = differs(classes([name])[name], [*scenarios, *far], torch.device("cuda"))
    assert found == set()


class OnASideStream(FUSED):
    """Nobody waits for the stream that it works on."""

    def gather_block_tables(self, *batch, **options):
        stream = self.__dict__.setdefault("side", torch.cuda.Stream())
        with torch.cuda.stream(stream):
            return super().gather_block_tables(*batch, **options)


@pytest.mark.gpu
def test_work_that_the_stream_does_not_wait_for_shows():
    # Several, since kernels that are compiled first may come too late to be early.
    mixed = (number for number in itertools.count() if theme_of(number) == "mixed")
    scenarios = [scenario(number) for number in itertools.islice(mixed, 6)]
    found = differs(OnASideStream, scenarios, torch.device("cuda"))
    assert any("input_block_tables" in name or name == "after the stream" for name in found), found
