"""Recorded calls of an engine as scenarios, which the player makes on any variant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bt_bench.base.errors import UsageError, counted, listed
from bt_bench.protocol import Excerpt, RecordedCalls
from bt_bench.suites.block_tables.exploring.calls import (
    BOTH,
    GATHER,
    OWN_SIZE,
    SLOTS,
    STEP,
    Apply,
    Batch,
    Call,
    Empty,
    Load,
    Mark,
    Parts,
    Run,
    Scenario,
    SetFlag,
    Stage,
    Write,
)
from bt_bench.suites.block_tables.exploring.tame import tamed
from bt_bench.suites.block_tables.workloads.recorded import batches, file
from bt_kernels.engines import recordings
from bt_kernels.layout import TableLayout

EXCERPT_STEPS = 64
"""Steps in an excerpt: the digests after each of their calls take a megabyte."""

AS_RECORDED = "the recorded calls"
FUSED = "one call for apply, gather and slots"

_NO_GROUPS = "tables without groups"
_TABLE = 0
_REDIRECT = "redirect_writes_to_null_block"


class RecordedTables(RecordedCalls):
    """See the base class.

    Args:
        path: the file.

    Raises:
        UsageError: as from `RecordedFile`, and for a file without a step.
    """

    def __init__(self, path: Path) -> None:
        self._file = file.RecordedFile(path)
        facts = file.facts_of(path)
        if not facts.steps:
            raise UsageError(
                f"{path}: holds no calls; expected those of a step or more: "
                f"{facts.note or 'record an engine that serves'}"
            )
        self.steps = facts.steps
        self.features = facts.features
        if not self._file.layout.num_groups:
            self.features |= {_NO_GROUPS}
        self.lines = tuple(_lines(self._file, facts))

    def excerpts(self, first: int, steps: int | None) -> Iterator[Excerpt]:
        """See the base class."""
        end = self.steps if steps is None else min(self.steps, first + steps)
        tables = _Tables(self._file.layout)
        calls: list[Call] = []
        begin = at = first
        for step, operation in self._file.operations():
            if step >= end:
                break
            begins = isinstance(operation, recordings.BeginStep)
            if step > at and begins:
                at = step
                if at - begin >= EXCERPT_STEPS and tables.is_settled:
                    yield self._excerpt(calls, at - begin)
                    calls, begin = [], at
            if step < first:
                tables.take(operation)
                continue
            if not calls:
                calls = [Mark(_TABLE, step), *tables.restored()]
            elif begins and step > begin:
                calls.append(Mark(_TABLE, step))
            calls += _calls(operation, self._file.layout)
            tables.take(operation)
        if calls:
            yield self._excerpt(calls, end - begin)

    def adapted(self, scenario: Any, features: frozenset[str]) -> Any:
        """See the base class."""
        return tamed(scenario, features)

    def located(self, scenario: Any, place: int) -> tuple[int, str]:
        """See the base class."""
        step = count = 0
        for call in scenario.calls:
            if isinstance(call, Mark):
                step = call.step
                continue
            if count == place:
                return step, str(call)
            count += 1
        return step, "the last call"

    def _excerpt(self, calls: Sequence[Call], steps: int) -> Excerpt:
        staged = _joined(calls)
        ways = {AS_RECORDED: staged, FUSED: _fused(staged)}
        if not any(isinstance(call, Run) and call.method in (STEP, BOTH) for call in ways[FUSED]):
            del ways[FUSED]
        layouts = (self._file.layout,)
        return Excerpt(
            steps, {way: Scenario("recorded", layouts, tuple(made)) for way, made in ways.items()}
        )


@dataclass
class _Tables:
    """The tables after the calls so far, for an excerpt that begins there.

    Args:
        layout: their layout.
    """

    layout: TableLayout
    _image: batches.TableImage = field(init=False)
    _writes: batches.Writes = field(init=False, default_factory=batches.Writes)
    _snapshot: recordings.Snapshot | None = None
    _is_empty: bool = True

    def __post_init__(self) -> None:
        self._image = batches.TableImage(self.layout)

    @property
    def is_settled(self) -> bool:
        """Return whether nothing is staged."""
        return not self._writes.staged

    def take(self, operation: recordings.Operation) -> None:
        """Take note of a call."""
        self._writes.add(operation)
        if isinstance(operation, recordings.Snapshot):
            self._image.replace(operation)
            self._writes.applied = []
            self._is_empty = False
        for append in self._writes.applied:
            self._image.write(append)
            self._is_empty = False
        self._writes.applied = []

    def restored(self) -> Iterator[Call]:
        """Yield the calls that bring fresh tables to this state."""
        if not self._is_empty:
            tables = tuple(map(_filled, self._image.tables))
            yield Load(_TABLE, tables, self._image.num_blocks.copy())
        if self._writes.redirects:
            yield SetFlag(_TABLE, _REDIRECT, 1)
        if self._writes.staged:
            yield Stage(_TABLE, tuple(map(_write, self._writes.staged)))


def _filled(table: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return the upper left part of a table that has all of its contents."""
    rows, columns = (np.flatnonzero(table.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return table[:0, :0].copy()
    return table[: rows[-1] + 1, : columns[-1] + 1].copy()


def _write(append: batches.Append) -> Write:
    return Write(append.row, tuple(map(tuple, append.block_ids)), append.overwrite)


def _calls(operation: recordings.Operation, layout: TableLayout) -> Iterator[Call]:
    """Yield the calls that an operation stands for; none if its arguments are not known."""
    match operation:
        case recordings.Append():
            ids = tuple(tuple(each.tolist()) for each in operation.ids)
            yield Stage(_TABLE, (Write(operation.row, ids, operation.overwrite),))
        case recordings.Apply():
            yield Apply(_TABLE)
        case recordings.Gather() | recordings.Slots() if not file.is_known(operation):
            return
        case recordings.Gather():
            yield Run(_TABLE, GATHER, _gathered(operation, layout))
        case recordings.Slots():
            yield Run(_TABLE, SLOTS, _mapped(operation))
        case recordings.DummyTables():
            yield Empty(_TABLE, "get_dummy_block_tables", operation.num_reqs)
        case recordings.DummySlots():
            yield Empty(_TABLE, "get_dummy_slot_mappings", operation.num_tokens)
        case recordings.Redirect():
            yield SetFlag(_TABLE, _REDIRECT, int(operation.redirects))
        case recordings.Snapshot():
            yield Load(
                _TABLE,
                tuple(map(_filled, operation.tables)),
                operation.num_blocks.astype(np.int64),
                tuple(map(_filled, operation.inputs)),
                operation.num_dirty_rows,
            )


def _gathered(gather: recordings.Gather, layout: TableLayout) -> Batch:
    assert gather.rows is not None
    computed = gather.computed if gather.masks else None
    of_rows = batches.by_row(gather.rows, computed, layout.max_num_reqs)
    return Batch(
        rows=gather.rows.astype(np.int64),
        starts=np.zeros(len(gather.rows) + 1, dtype=np.int64),
        positions=np.zeros(0, dtype=np.int64),
        reqs=gather.num_reqs_padded,
        tokens=0,
        computed=None if of_rows is None else of_rows.astype(np.int64),
        out=None if gather.out_rows is None else OWN_SIZE,
        parts=Parts.TABLES,
    )


def _mapped(slots: recordings.Slots) -> Batch:
    assert slots.rows is not None
    assert slots.starts is not None
    assert slots.positions is not None
    return Batch(
        rows=slots.rows.astype(np.int64),
        starts=slots.starts.astype(np.int64),
        positions=slots.positions,
        reqs=len(slots.rows),
        tokens=slots.num_tokens_padded,
        out=None if slots.out_columns is None else OWN_SIZE,
        parts=Parts.SLOTS,
    )


def _joined(calls: Sequence[Call]) -> list[Call]:
    """Return the calls with consecutive appends in one, after which buffers are compared once."""
    found: list[Call] = []
    for call in calls:
        before = found[-1] if found else None
        if isinstance(call, Stage) and isinstance(before, Stage):
            found[-1] = replace(before, writes=(*before.writes, *call.writes))
        else:
            found.append(call)
    return found


def _fused(calls: Sequence[Call]) -> list[Call]:
    """Return the calls with one for apply, gather and slots, and one for the appends before."""
    found: list[Call] = []
    for call in calls:
        if isinstance(call, Stage):
            call = replace(call, many=True)
        gather = found[-1] if found else None
        if _are_of_one_batch(gather, call):
            assert isinstance(gather, Run)
            assert isinstance(call, Run)
            found.pop()
            applies = bool(found) and isinstance(found[-1], Apply)
            if applies:
                found.pop()
            batch = replace(call.batch, reqs=gather.batch.reqs, computed=gather.batch.computed)
            call = Run(_TABLE, STEP if applies else BOTH, batch)
        found.append(call)
    return found


def _are_of_one_batch(gather: Call | None, slots: Call) -> bool:
    return (
        isinstance(gather, Run)
        and isinstance(slots, Run)
        and (gather.method, slots.method) == (GATHER, SLOTS)
        and gather.batch.out is slots.batch.out is None
        and np.array_equal(gather.batch.rows, slots.batch.rows)
    )


def _lines(recorded: file.RecordedFile, facts: file.RecordedFacts) -> Iterator[str]:
    layout = recorded.layout
    groups = counted(layout.num_groups, "group")
    yield f"{counted(facts.steps, 'step')} of {recorded.source}, {groups}"
    if facts.difference is not None:
        found = facts.difference
        place = f"[{', '.join(map(str, found.place))}]" if found.place else ""
        yield (
            f"shadow mode found a difference in its step {found.step}, after {found.after}: "
            f"{found.buffer}{place} is {found.ours} in bt_kernels, and {found.theirs} in vLLM"
        )
    if facts.unknown.total():
        left = [f"{counted(count, 'call')} of {name}" for name, count in facts.unknown.items()]
        yield f"left out: {listed(left)}, whose arguments were on the GPU alone"
    if facts.note:
        yield f"warning: {facts.note}"
