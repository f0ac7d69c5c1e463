"""Faults planted in the reference, each of which the default run shows."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from bt_bench.protocol import Source, default_suite
from bt_bench.suites.block_tables.exploring.generate import make
from bt_bench.suites.block_tables.exploring.schedule import SCENARIOS
from bt_bench.worker import Play
from bt_bench.worker.checking.playing import play
from bt_kernels.layout import FEATURES
from bt_kernels.variants.reference import Variant as Reference

SUITE = default_suite()
CPU = torch.device("cpu")
SIZES = (777,)


@cache
def made(number):
    """Without refusals, since the reference checks little."""
    return make(Source(11, number, FEATURES, SIZES))


@cache
def expected(number):
    return play(Play((made(number),)), SUITE, None, None, CPU)[0]


def shown_by(variant, numbers=range(SCENARIOS)):
    """The first scenario of a default run that shows what is wrong; `None` if none does."""
    for number in numbers:
        if made(number).theme == "refusals":
            continue
        found = play(Play((made(number),)), SUITE, "it", variant, CPU)[0]
        if found.reason is not None or found.digests != expected(number).digests:
            if any(type(call).__name__ == "Refused" for call in made(number).calls):
                continue
            return number
    return None


class LeavesMates(Reference):
    """Slots of a short request right behind a long one stay, where there are many rows."""

    def prepare_step(self, rows, starts, positions, reqs, tokens, **options):
        before = self.slot_mappings.clone()
        result = super().prepare_step(rows, starts, positions, reqs, tokens, **options)
        lengths = np.diff(starts[: len(rows) + 1].numpy())
        if self.layout.num_groups * reqs > 1024:
            for at in range(1, len(lengths), 2):
                if lengths[at - 1] > 32 and lengths[at] <= 16:
                    span = -(-int(starts[at]) // 128) * 128
                    mine = slice(span, int(starts[at + 1]))
                    self.slot_mappings[:, mine] = before[:, mine]
        return result


class ForgetsRows(Reference):
    """A gather leaves a part of the input tables as it was."""

    part = np.s_[1024:]

    def gather_block_tables(self, rows, reqs, out=None, *args, **options):
        before = [table[self.part].clone() for table in self.input_block_tables]
        result = super().gather_block_tables(rows, reqs, out, *args, **options)
        for table, old in zip(self.input_block_tables, before, strict=True):
            table[self.part] = old
        return result


class ForgetsColumns(ForgetsRows):
    part = np.s_[:, 65_535:]


class ForgetsTheLastWrite(Reference):
    def apply_staged_writes(self):
        if len({row for _, row in self._staged}) > 512:
            del self._staged[max(self._staged)]
        super().apply_staged_writes()


class ForgetsGroups(Reference):
    def compute_slot_mappings(self, rows, starts, positions, tokens, out=None):
        result = super().compute_slot_mappings(rows, starts, positions, tokens, out)
        if out is None:
            self.slot_mappings[32:] = 7
        return result


class CountsApplies(Reference):
    count = 0

    def apply_staged_writes(self):
        self.count += 1
        super().apply_staged_writes()
        if self.count == 1024:
            self.block_tables[0][0, 0] ^= 1


class CountsSteps(Reference):
    count = 0

    def prepare_step(self, *batch, **options):
        self.count += 1
        result = super().prepare_step(*batch, **options)
        if self.count == 256:
            self.slot_mappings[0, 0] ^= 1
        return result


class PadsBehindPositions(Reference):
    """The tokens that `positions` has room for are taken for those of the batch."""

    def compute_slot_mappings(self, rows, starts, positions, tokens, out=None):
        starts = starts.clone()
        if len(rows) and out is None:
            room = self.layout.max_num_batched_tokens
            starts[len(rows)] = max(int(starts[len(rows)]), min(positions.numel(), room))
        return super().compute_slot_mappings(rows, starts, positions, tokens, out)


class WrapsComputed(Reference):
    def _first_column(self, group, computed):
        return super()._first_column(group, computed - 2**32 if computed >= 2**31 - 2 else computed)


class KnowsMappings(Reference):
    """Takes a mapping with the same ends for the same."""

    known: tuple[tuple[int, int, int], torch.Tensor] | None = None

    def compute_slot_mappings(self, rows, starts, positions, tokens, out=None):
        if len(rows) > 2:
            key = len(rows), int(rows[0]), int(rows[-1])
            if self.known is None or self.known[0] != key:
                self.known = key, rows.clone()
            rows = self.known[1]
        return super().compute_slot_mappings(rows, starts, positions, tokens, out)


class ClipsRows(Reference):
    def _rows(self, idx_mapping):
        return [min(row, self.layout.max_num_reqs - 1) for row in idx_mapping.tolist()]


class NamesTokens(Reference):
    def compute_slot_mappings(self, rows, starts, positions, tokens, out=None):
        result = super().compute_slot_mappings(rows, starts, positions, tokens, out)
        if int(starts[len(rows)]) == 778 and out is None:
            self.slot_mappings[:, 777] = 3
        return result


class NamesColumns(Reference):
    def append_block_ids(self, row, ids, overwrite):
        super().append_block_ids(row, ids, overwrite)
        for group in range(self.layout.num_groups):
            if self.num_blocks[group, row] == 778 and self.layout.widths[group] == 778:
                self._staged.pop((group, row), None)


class StopsWithTheLayout(Reference):
    """Slots of a caller that are for more tokens than the layout has stay as they were there."""

    def compute_slot_mappings(self, rows, starts, positions, tokens, out=None):
        room = self.layout.max_num_batched_tokens
        before = None if out is None else out[:, room:tokens].clone()
        result = super().compute_slot_mappings(rows, starts, positions, tokens, out)
        if before is not None:
            out[:, room:tokens] = before
        return result


class CountsWhatWaits(Reference):
    """A gather takes the blocks that a row is about to have, in wide tables."""

    def gather_block_tables(self, rows, reqs, *args, **options):
        before = [table[:, 1024:].clone() for table in self.input_block_tables]
        result = super().gather_block_tables(rows, reqs, *args, **options)
        if self.num_blocks.max() <= 1024:
            for table, old in zip(self.input_block_tables, before, strict=True):
                table[:reqs, 1024:] = old[:reqs]
        return result


class LosesPieces(Reference):
    """Of a row that gets ids in many parts, between long writes of others, one is lost."""

    dropped = 0

    def append_block_ids(self, row, ids, overwrite):
        if overwrite:
            self.dropped += len(ids[0])
        if self.dropped > 2_000 and not overwrite:
            ids, self.dropped = [[one ^ 1 for one in each] for each in ids], 0
        super().append_block_ids(row, ids, overwrite)

    def apply_staged_writes(self):
        self.dropped = 0
        super().apply_staged_writes()


# With a scenario that has shown each: it is tried before all others, which take long.
MUTANTS = {
    **{LeavesMates: 34, ForgetsRows: 27, ForgetsColumns: 10, ForgetsTheLastWrite: 18},
    **{ForgetsGroups: 9, CountsApplies: 23, CountsSteps: 21, PadsBehindPositions: 2},
    **{WrapsComputed: 4, KnowsMappings: 21, ClipsRows: 4, NamesTokens: 62, NamesColumns: 62},
    **{StopsWithTheLayout: 19, CountsWhatWaits: 37, LosesPieces: 10},
}


def test_the_reference_is_right():
    assert shown_by(Reference, range(0, SCENARIOS, 4)) is None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mutants_are_shown(mutant):
    assert shown_by(mutant, [MUTANTS[mutant], *range(SCENARIOS)]) is not None
