"""The bytes of device memory that each operation must move in each step, as a lower bound.

Each byte is counted once: ids are int32, slots and positions int64 (`docs/block-tables.md`). Not
counted is what a variant can know without reading it: ids that it applies in the same call, and
padding and empty rows that an earlier step left. What is staged lies in host memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bt_bench.protocol import Traffic
from bt_bench.suites.block_tables.workloads.steps import Append, Int64Array, Step, Workload

ID_BYTES = 4
SLOT_BYTES = 8
POSITION_BYTES = 8
START_BYTES = 4  # an entry of query_start_loc
COUNT_BYTES = 4  # an entry of num_computed_tokens

Cells = set[tuple[int, int, int]]
"""Group, row and column of entries of the source tables."""


@dataclass(frozen=True)
class _Parts:
    """What a step is made of.

    Args:
        applied: entries that staged writes fill.
        gathered: entries that are read to be copied.
        copied: entries of the input tables that are written.
        looked_up: entries that slots are computed from.
        slots: slots that are written.
    """

    applied: Cells
    gathered: Cells
    copied: int
    looked_up: Cells
    slots: int


def traffic_of(workload: Workload) -> dict[str, list[Traffic]]:
    """What one call of each operation must move in each step of a workload, by its name."""
    index_bytes = np.dtype(workload.idx_mapping_dtype).itemsize
    num_blocks = np.zeros((workload.layout.num_groups, workload.layout.max_num_reqs), np.int64)
    _apply(num_blocks, workload.setup)
    found: dict[str, list[Traffic]] = {
        name: [] for name in ("stage", "apply", "gather", "slots", "gather_slots", "step")
    }
    before: Step | None = None
    for step in workload.steps:
        parts = _parts_of(workload, step, num_blocks, before)
        before = step
        mapping = step.num_reqs * index_bytes
        windows = 0 if step.num_computed_tokens is None else _num_live(step) * COUNT_BYTES
        arrays = (step.num_reqs + 1) * START_BYTES + step.num_tokens * POSITION_BYTES
        applied = len(parts.applied) * ID_BYTES
        rows, slots = parts.copied * ID_BYTES, parts.slots * SLOT_BYTES
        both = parts.gathered | parts.looked_up
        found["stage"].append(Traffic(0, 0))
        found["apply"].append(Traffic(0, applied))
        found["gather"].append(Traffic(mapping + windows + len(parts.gathered) * ID_BYTES, rows))
        found["slots"].append(Traffic(mapping + arrays + len(parts.looked_up) * ID_BYTES, slots))
        shared = mapping + windows + arrays
        found["gather_slots"].append(Traffic(shared + len(both) * ID_BYTES, rows + slots))
        known = len(both - parts.applied)
        found["step"].append(Traffic(shared + known * ID_BYTES, applied + rows + slots))
    return found


def _num_live(step: Step) -> int:
    return int((step.idx_mapping >= 0).sum())


def _apply(num_blocks: Int64Array, appends: tuple[Append, ...]) -> Cells:
    """Counts the blocks of each row, `[G, max_num_reqs]`, in place; returns the filled entries."""
    filled: Cells = set()
    for append in appends:
        row = append.row
        if append.overwrite:
            num_blocks[:, row] = 0
            filled = {cell for cell in filled if cell[1] != row}
        for group, ids in enumerate(append.block_ids):
            start = int(num_blocks[group, row])
            filled |= {(group, row, start + offset) for offset in range(len(ids))}
            num_blocks[group, row] += len(ids)
    return filled


def _parts_of(
    workload: Workload, step: Step, num_blocks: Int64Array, before: Step | None
) -> _Parts:
    applied = _apply(num_blocks, step.appends)
    layout = workload.layout
    gathered: Cells = set()
    copied = 0
    filled_before = 0 if before is None else before.num_reqs
    for place, row in enumerate(step.idx_mapping.tolist()):
        for group, size in enumerate(layout.block_sizes):
            if row < 0:
                # A dummy's row is zeroed, if an earlier request has filled it.
                copied += layout.widths[group] if place < filled_before else 0
                continue
            blocks = int(num_blocks[group, row])
            first = _first_read(workload, step, group, row, size)
            gathered |= {(group, row, column) for column in range(min(first, blocks), blocks)}
            copied += blocks
    # Rows that the last step filled and this one does not are zeroed.
    copied += max(0, filled_before - step.num_reqs) * sum(layout.widths)
    looked_up, num_enabled = _looked_up(workload, step), sum(layout.slot_mapping_enabled)
    stale = 0 if before is None else max(0, before.num_tokens - step.num_tokens)
    return _Parts(applied, gathered, copied, looked_up, num_enabled * (step.num_tokens + stale))


def _first_read(workload: Workload, step: Step, group: int, row: int, size: int) -> int:
    """The first column of a row that is read; those before the window become 0 unread."""
    reach = workload.layout.reaches[group]
    if step.num_computed_tokens is None or not reach:
        return 0
    return int(max(int(step.num_computed_tokens[row]) - reach, 0) // size)


def _looked_up(workload: Workload, step: Step) -> Cells:
    """The entries that the tokens of this rank lie in, whether or not the row owns them."""
    layout = workload.layout
    rows = np.repeat(step.idx_mapping, np.diff(step.query_start_loc))
    cells: Cells = set()
    for group, tokens in enumerate(layout.tokens_per_block):
        if not layout.slot_mapping_enabled[group]:
            continue
        columns = step.positions // tokens
        inside = (rows >= 0) & (columns >= 0) & (columns < layout.widths[group])
        ranks = tokens // layout.block_sizes[group]
        offsets = step.positions % tokens // layout.cp_interleave
        inside &= (ranks == 1) | (offsets % ranks == layout.cp_rank)
        pairs = zip(rows[inside].tolist(), columns[inside].tolist(), strict=True)
        cells |= {(group, row, column) for row, column in pairs}
    return cells
