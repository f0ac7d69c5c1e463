"""Makes the calls of a file of recorded calls on block tables on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bt_kernels.engines.recordings import (
    Append,
    Apply,
    DummySlots,
    DummyTables,
    Gather,
    Operation,
    Recording,
    Redirect,
    Slots,
    Snapshot,
)


def tables_for(recording: Recording, kind: type[Any]) -> Any:
    """Return new tables of a class with vLLM's constructor."""
    header = recording.header
    names = (
        *("block_sizes", "max_num_reqs", "max_num_batched_tokens", "max_num_blocks_per_group"),
        *("cp_size", "cp_rank", "cp_interleave"),
        *("slot_mapping_enabled", "dcp_sharded", "sliding_window_reach"),
    )
    values = {name: getattr(header, name) for name in names}
    lists = {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }
    return kind(**lists, device=torch.device("cpu"))


@torch.inference_mode()
def replay(recording: Recording, tables: Any) -> list[Operation]:
    """Make all calls, and return the operations."""
    done = []
    for operation in recording.operations():
        _replay(operation, tables)
        done.append(operation)
    return done


def _replay(operation: Operation, tables: Any) -> None:
    match operation:
        case Append(row, ids, overwrite):
            tables.append_block_ids(row, tuple(group.tolist() for group in ids), overwrite)
        case Apply():
            tables.apply_staged_writes()
        case Redirect(redirects):
            tables.redirect_writes_to_null_block = redirects
        case Gather():
            _gather(operation, tables)
        case Slots():
            _slots(operation, tables)
        case DummyTables(num_reqs):
            tables.get_dummy_block_tables(num_reqs)
        case DummySlots(num_tokens):
            tables.get_dummy_slot_mappings(num_tokens)
        case Snapshot():
            _restore(operation, tables)


def _gather(gather: Gather, tables: Any) -> None:
    assert gather.rows is not None
    computed = None
    if gather.masks:
        assert gather.computed is not None
        computed = torch.zeros(len(tables.num_blocks.np[0]), dtype=torch.int32)
        computed[gather.rows.tolist()] = torch.tensor(gather.computed.tolist(), dtype=torch.int32)
    out = pointers = None
    if gather.out_rows is not None:
        out = tuple(
            torch.zeros(gather.out_rows, table.shape[1], dtype=torch.int32)
            for table in tables.input_block_tables
        )
        pointers = torch.tensor([table.data_ptr() for table in out], dtype=torch.uint64)
    rows = torch.from_numpy(gather.rows.astype(np.int64))
    tables.gather_block_tables(rows, gather.num_reqs_padded, out, pointers, computed)


def _slots(slots: Slots, tables: Any) -> None:
    assert slots.rows is not None
    assert slots.starts is not None
    assert slots.positions is not None
    out = None
    if slots.out_columns is not None:
        out = torch.zeros(len(tables.block_sizes), slots.out_columns, dtype=torch.int64)
    tables.compute_slot_mappings(
        torch.from_numpy(slots.rows.astype(np.int64)),
        torch.from_numpy(slots.starts.copy()),
        torch.from_numpy(slots.positions),
        slots.num_tokens_padded,
        out,
    )


def _restore(snapshot: Snapshot, tables: Any) -> None:
    tables.num_blocks.np[:] = snapshot.num_blocks
    tables.num_blocks.copy_to_uva()
    for table, content in zip(tables.block_tables, snapshot.tables, strict=True):
        table.gpu.copy_(torch.from_numpy(content.copy()))
    for table, content in zip(tables.input_block_tables, snapshot.inputs, strict=False):
        table.copy_(torch.from_numpy(content.copy()))
    tables._num_dirty_rows = snapshot.num_dirty_rows
