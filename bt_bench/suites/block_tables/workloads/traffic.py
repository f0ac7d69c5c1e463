"""The bytes that each operation must move in each step, as a lower bound.

Every byte is counted once: ids are int32, slots and positions int64 (`docs/block-tables.md`). What
a variant may know without reading, such as the padding that an earlier step wrote, is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bt_bench.protocol import Operation, Traffic
from bt_bench.suites.block_tables import operations
from bt_bench.suites.block_tables.workloads.steps import Append, Int64Array, Step, Workload

ID_BYTES = 4
SLOT_BYTES = 8
POSITION_BYTES = 8
START_BYTES = 4  # an entry of query_start_loc


def traffic_of(workload: Workload, operation: Operation) -> list[Traffic]:
    """What one call of an operation must move in each step of a workload."""
    index_bytes = np.dtype(workload.idx_mapping_dtype).itemsize
    num_blocks = np.zeros((workload.layout.num_groups, workload.layout.max_num_reqs), np.int64)
    _own(num_blocks, workload.setup)
    found = []
    slots_before = 0
    for step in workload.steps:
        _own(num_blocks, step.appends)
        parts = {
            operations.STAGE: Traffic(0, 0),
            operations.APPLY: _apply(step),
            operations.GATHER: _gather(workload, step, num_blocks, index_bytes),
            operations.SLOTS: _slots(workload, step, num_blocks, index_bytes, slots_before),
        }
        both = parts[operations.GATHER] + parts[operations.SLOTS]
        parts[operations.GATHER_SLOTS] = both
        parts[operations.STEP] = both + parts[operations.APPLY]
        slots_before = step.num_tokens
        found.append(parts[operation])
    return found


def _own(num_blocks: Int64Array, appends: tuple[Append, ...]) -> None:
    """Counts the blocks that rows own after some appends; `[G, max_num_reqs]`, in place."""
    for append in appends:
        if append.overwrite:
            num_blocks[:, append.row] = 0
        num_blocks[:, append.row] += [len(ids) for ids in append.block_ids]


def _apply(step: Step) -> Traffic:
    ids = sum(len(of_group) for append in step.appends for of_group in append.block_ids)
    return Traffic(ids * ID_BYTES, ids * ID_BYTES)


def _gather(workload: Workload, step: Step, num_blocks: Int64Array, index_bytes: int) -> Traffic:
    """Owned blocks of live rows are copied; dummy and padded rows are zeroed as a whole."""
    live = step.idx_mapping[step.idx_mapping >= 0]
    empty = step.num_reqs_padded - len(live)
    copied = int(num_blocks[:, live].sum())
    zeroed = empty * sum(workload.layout.widths)
    skipped = sum(_before_window(workload, step, num_blocks, live))
    read = step.num_reqs * index_bytes + (copied - skipped) * ID_BYTES
    return Traffic(read, (copied + zeroed) * ID_BYTES)


def _before_window(
    workload: Workload, step: Step, num_blocks: Int64Array, live: Int64Array
) -> Iterator[int]:
    """Per group, blocks before the sliding window, which become 0 without being read."""
    if step.num_computed_tokens is None:
        return
    computed = step.num_computed_tokens[live].astype(np.int64)
    layout = workload.layout
    for group, (reach, size) in enumerate(zip(layout.reaches, layout.block_sizes, strict=True)):
        if reach:
            first = np.maximum(computed - reach, 0) // size
            yield int(np.minimum(first, num_blocks[group, live]).sum())


def _slots(
    workload: Workload,
    step: Step,
    num_blocks: Int64Array,
    index_bytes: int,
    slots_before: int,
) -> Traffic:
    """Each block that a token lies in is read once; slots that no longer count become PAD."""
    layout = workload.layout
    rows = np.repeat(step.idx_mapping, np.diff(step.query_start_loc))
    blocks = 0
    for group, tokens in enumerate(layout.tokens_per_block):
        if not layout.slot_mapping_enabled[group]:
            continue
        columns = step.positions // tokens
        inside = (rows >= 0) & (columns >= 0) & (columns < num_blocks[group, rows])
        blocks += len(np.unique(np.stack((rows[inside], columns[inside])), axis=1).T)
    read = step.num_reqs * index_bytes + (step.num_reqs + 1) * START_BYTES
    read += step.num_tokens * POSITION_BYTES + blocks * ID_BYTES
    written = layout.num_groups * max(step.num_tokens, slots_before) * SLOT_BYTES
    return Traffic(read, written)
