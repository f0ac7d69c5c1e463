"""Batches of recorded calls: a gather, the slots for the same requests, and the writes before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bt_bench.suites.block_tables.workloads.steps import Append, Step
from bt_kernels.engines.recordings import Append as RecordedAppend
from bt_kernels.engines.recordings import (
    Apply,
    DummySlots,
    DummyTables,
    Gather,
    Operation,
    Redirect,
    Slots,
    Snapshot,
)
from bt_kernels.layout import TableLayout

Int32Array = npt.NDArray[np.int32]


class TableImage:
    """The contents of the source tables after the recorded calls so far.

    Args:
        layout: layout of the tables.

    Attributes:
        num_blocks: `[G, max_num_reqs]` int64, blocks of each row.
        tables: per group, int32 `[max_num_reqs, width]`. Rows that nothing was written to take no
            memory.
    """

    def __init__(self, layout: TableLayout) -> None:
        rows = layout.max_num_reqs
        self.num_blocks = np.zeros((layout.num_groups, rows), dtype=np.int64)
        self.tables = [np.zeros((rows, width), dtype=np.int32) for width in layout.widths]

    def write(self, append: Append) -> None:
        """Write the ids of an append."""
        row = append.row
        if append.overwrite:
            self.num_blocks[:, row] = 0
        for group, ids in enumerate(append.block_ids):
            start = int(self.num_blocks[group, row])
            self.tables[group][row, start : start + len(ids)] = ids
            self.num_blocks[group, row] = start + len(ids)

    def replace(self, snapshot: Snapshot) -> None:
        """Take over the contents of a snapshot."""
        self.num_blocks[:] = snapshot.num_blocks
        for table, contents in zip(self.tables, snapshot.tables, strict=True):
            table[:] = contents

    def appends(self) -> tuple[Append, ...]:
        """Return the appends that give fresh tables the blocks of all rows."""
        found = []
        for row in np.flatnonzero(self.num_blocks.any(axis=0)).tolist():
            counts = self.num_blocks[:, row].tolist()
            pairs = zip(self.tables, counts, strict=True)
            ids = tuple(table[row, :count].tolist() for table, count in pairs)
            found.append(Append(row, ids, overwrite=True))
        return tuple(found)


class Writes:
    """The writes that calls have staged, and those that an apply has written since the last batch.

    While writes are redirected, each id becomes 0, the null block.
    """

    def __init__(self) -> None:
        self.redirects = False
        self.staged: list[Append] = []
        self.applied: list[Append] = []

    def add(self, operation: Operation) -> None:
        """Take note of an append, an apply or a redirection; ignore any other call."""
        match operation:
            case RecordedAppend():
                lists = (ids.tolist() for ids in operation.ids)
                ids = tuple([0] * len(each) if self.redirects else each for each in lists)
                self.staged.append(Append(operation.row, ids, operation.overwrite))
            case Apply():
                self.applied += self.staged
                self.staged = []
            case Redirect():
                self.redirects = operation.redirects


@dataclass(frozen=True)
class RecordedBatch:
    """A gather and the slots for the same requests.

    Args:
        appends: written since the batch before.
        rows: int32 `[R]`.
        starts: int32 `[R + 1]`.
        positions: int64 `[T]`.
        num_reqs_padded: rows that the engine reads.
        num_tokens_padded: slots that it reads.
        computed: int32 `[R]`, computed tokens of each request; `None`: not passed.
    """

    appends: tuple[Append, ...]
    rows: Int32Array
    starts: Int32Array
    positions: npt.NDArray[np.int64]
    num_reqs_padded: int
    num_tokens_padded: int
    computed: Int32Array | None

    def step(self, max_num_reqs: int) -> Step:
        """Return the batch as a step of a workload."""
        return Step(
            appends=self.appends,
            idx_mapping=self.rows.astype(np.int64),
            query_start_loc=self.starts.astype(np.int32),
            positions=self.positions.astype(np.int64),
            num_reqs_padded=self.num_reqs_padded,
            num_tokens_padded=self.num_tokens_padded,
            num_computed_tokens=by_row(self.rows, self.computed, max_num_reqs),
        )


def by_row(
    rows: Int32Array, computed: Int32Array | None, max_num_reqs: int
) -> npt.NDArray[np.int32] | None:
    """Return computed tokens by request row, `[max_num_reqs]`; 0 for rows that are in no batch."""
    if computed is None:
        return None
    found = np.zeros(max_num_reqs, dtype=np.int32)
    is_row = (rows >= 0) & (rows < max_num_reqs)
    found[rows[is_row]] = computed[is_row]
    return found


class Batches:
    """The batches among recorded calls, in their order.

    Args:
        image: empty tables, to be kept up to date; `None`: nobody needs them.

    Attributes:
        others: number of calls in no batch, by method: drafts, dummy runs, and outputs of the
            caller.
        image: the source tables after the last batch.
        num_found: number of batches so far.
    """

    def __init__(self, image: TableImage | None = None) -> None:
        self._writes = Writes()
        self._gather: Gather | None = None
        self.image = image
        self.others: Counter[str] = Counter()
        self.num_found = 0

    def of(self, operation: Operation) -> Iterator[RecordedBatch]:
        """Yield the batch that an operation ends, if it does; all its arguments are known."""
        self._writes.add(operation)
        match operation:
            case Gather(out_rows=None):
                self._drop_gather()
                self._gather = operation
            case Slots(out_columns=None) if self._is_of_gather(operation):
                batch = self._batch(operation)
                yield batch
                if self.image is not None:
                    for append in batch.appends:
                        self.image.write(append)
                self._gather, self._writes.applied = None, []
                self.num_found += 1
            case Gather():
                self.others["gather_block_tables"] += 1
            case Slots():
                self.others["compute_slot_mappings"] += 1
            case DummyTables():
                self.others["get_dummy_block_tables"] += 1
            case DummySlots():
                self.others["get_dummy_slot_mappings"] += 1
            case Apply():
                self._drop_gather()
            case Snapshot():
                self._drop_gather()
                if self.image is not None:
                    self.image.replace(operation)
                self._writes.applied = []

    def _is_of_gather(self, slots: Slots) -> bool:
        gather = self._gather
        if gather is None or gather.rows is None or slots.rows is None:
            return False
        return np.array_equal(gather.rows, slots.rows)

    def _drop_gather(self) -> None:
        self.others["gather_block_tables"] += self._gather is not None
        self._gather = None

    def _batch(self, slots: Slots) -> RecordedBatch:
        gather = self._gather
        assert gather is not None
        assert slots.rows is not None
        assert slots.starts is not None
        assert slots.positions is not None
        return RecordedBatch(
            tuple(self._writes.applied),
            slots.rows,
            slots.starts,
            slots.positions,
            gather.num_reqs_padded,
            slots.num_tokens_padded,
            gather.computed if gather.masks else None,
        )
