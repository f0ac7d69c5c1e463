"""The bytes of device memory that each operation must move in each step, as a lower bound.

Each byte is counted once: ids are int32, slots and positions int64 (`docs/block-tables.md`). Data
that a variant can know without reading is not counted: ids that it applies in the same call, and
padding and empty rows that an earlier step left. Staged writes lie in host memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bt_bench.protocol import Traffic
from bt_bench.suites.block_tables.workloads.steps import Append, Int64Array, Step
from bt_kernels.layout import TableLayout

ID_BYTES = 4
SLOT_BYTES = 8
POSITION_BYTES = 8
START_BYTES = 4  # an entry of query_start_loc
COUNT_BYTES = 4  # an entry of num_computed_tokens


def traffic_of(
    layout: TableLayout, index_bytes: int, setup: Sequence[Append], steps: Sequence[Step]
) -> dict[str, list[Traffic]]:
    """Return the bytes that one call of each operation must move in each step, by its name.

    Args:
        layout: layout of the tables.
        index_bytes: bytes of an entry of `idx_mapping`.
        setup: appends before the first step.
        steps: the steps, in order.
    """
    num_blocks = np.zeros((layout.num_groups, layout.max_num_reqs), np.int64)
    _apply(num_blocks, setup)
    names = ("stage", "apply", "gather", "slots", "gather_slots", "step")
    pairs = zip([None, *steps], steps, strict=False)
    found = [_of_step(layout, index_bytes, step, num_blocks, before) for before, step in pairs]
    return {name: [of_step[name] for of_step in found] for name in names}


def _apply(num_blocks: Int64Array, appends: Sequence[Append]) -> tuple[Int64Array, Int64Array]:
    """Count the blocks of each row after some writes, in place; `[G, max_num_reqs]`.

    Returns:
        The first column filled in each row, and the one after the last, in the same shape.
    """
    starts = num_blocks.copy()
    for append in appends:
        if append.overwrite:
            num_blocks[:, append.row] = 0
            starts[:, append.row] = 0
        num_blocks[:, append.row] += [len(ids) for ids in append.block_ids]
    written = np.zeros(num_blocks.shape[1], dtype=bool)
    written[[append.row for append in appends]] = True
    return starts, np.where(written, num_blocks, starts)


def _of_step(
    layout: TableLayout,
    index_bytes: int,
    step: Step,
    num_blocks: Int64Array,
    before: Step | None,
) -> dict[str, Traffic]:
    """Return the bytes of each operation in a step, by its name; counts its blocks.

    Args:
        layout: layout of the tables.
        index_bytes: bytes of an entry of `idx_mapping`.
        step: the step.
        num_blocks: `[G, max_num_reqs]`, blocks of each row before the step; then those after it.
        before: the step before; `None`: there is none.
    """
    starts, ends = _apply(num_blocks, step.appends)
    rows = np.unique(step.idx_mapping[step.idx_mapping >= 0])
    live = step.idx_mapping[step.idx_mapping >= 0]
    filled_before = 0 if before is None else before.num_reqs
    # Rows of dummies, and those that the last step filled and this one does not, are zeroed.
    dummies = int((step.idx_mapping[:filled_before] < 0).sum())
    left_over = max(0, filled_before - step.num_reqs)
    copied = (dummies + left_over) * sum(layout.widths)  # entries of the input tables
    # Entries that are read to be copied; that slots are computed from; that are either; and of
    # these, those that staged writes fill in the same step.
    gathered = looked_up = either = known = 0
    for group, blocks in enumerate(num_blocks):
        first = np.minimum(_first_read(layout, step, group), blocks)
        copied += int(blocks[live].sum())
        read = int((blocks - first)[rows].sum())
        at_rows, at_columns = _looked_up(layout, step, group)
        outside = (at_columns < first[at_rows]) | (at_columns >= blocks[at_rows])
        applied = (at_columns >= starts[group, at_rows]) & (at_columns < ends[group, at_rows])
        common = np.minimum(ends[group], blocks) - np.maximum(starts[group], first)
        gathered += read
        looked_up += len(at_rows)
        either += read + int(outside.sum())
        known += int(np.maximum(common, 0)[rows].sum()) + int((outside & applied).sum())
    stale = 0 if before is None else max(0, before.num_tokens - step.num_tokens)
    mapping = step.num_reqs * index_bytes
    windows = 0 if step.num_computed_tokens is None else len(live) * COUNT_BYTES
    arrays = (step.num_reqs + 1) * START_BYTES + step.num_tokens * POSITION_BYTES
    fused = mapping + windows + arrays + either * ID_BYTES
    written = int((ends - starts).sum()) * ID_BYTES
    rows_out = copied * ID_BYTES
    slots = sum(layout.slot_mapping_enabled) * (step.num_tokens + stale) * SLOT_BYTES
    return {
        "stage": Traffic(0, 0),
        "apply": Traffic(0, written),
        "gather": Traffic(mapping + windows + gathered * ID_BYTES, rows_out),
        "slots": Traffic(mapping + arrays + looked_up * ID_BYTES, slots),
        "gather_slots": Traffic(fused, rows_out + slots),
        "step": Traffic(fused - known * ID_BYTES, written + rows_out + slots),
    }


def _first_read(layout: TableLayout, step: Step, group: int) -> Int64Array:
    """Return the first column of each row that is read; earlier ones become 0 unread."""
    reach = layout.reaches[group]
    if step.num_computed_tokens is None or not reach:
        return np.zeros(layout.max_num_reqs, dtype=np.int64)
    computed = step.num_computed_tokens.astype(np.int64)
    first: Int64Array = np.maximum(computed - reach, 0) // layout.block_sizes[group]
    return first


def _looked_up(layout: TableLayout, step: Step, group: int) -> tuple[Int64Array, Int64Array]:
    """Return rows and columns, each pair once, of the entries that hold this rank's tokens."""
    if not layout.slot_mapping_enabled[group]:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    tokens, width = layout.tokens_per_block[group], layout.widths[group]
    rows = np.repeat(step.idx_mapping, np.diff(step.query_start_loc))
    columns = step.positions // tokens
    inside = (rows >= 0) & (columns >= 0) & (columns < width)
    ranks = tokens // layout.block_sizes[group]
    if ranks > 1:
        inside &= step.positions % tokens // layout.cp_interleave % ranks == layout.cp_rank
    codes = np.unique(rows[inside] * width + columns[inside])
    return codes // width, codes % width
