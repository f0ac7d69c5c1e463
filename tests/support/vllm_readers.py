"""Readers of block tables between the calls of a step, and the calls of speculators after one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


@torch.inference_mode()
def drafts(tables: Any, batch: Any) -> list[torch.Tensor]:
    """As speculators do after a step: a gather whose result is not used, and slots of their own."""
    device = tables.slot_mappings.device
    mapping = torch.tensor(batch.rows, device=device)
    starts = torch.arange(len(batch.rows) + 1, dtype=torch.int32, device=device)
    at = torch.tensor(batch.starts, device=device)
    out = torch.full((len(tables.block_sizes), len(at) + 9), -5, device=device)
    tables.gather_block_tables(mapping, batch.num_reqs_padded)
    slots = tables.compute_slot_mappings(mapping, starts, at, len(at), out=out)
    return [slots.clone(), out, tables.compute_slot_mappings(mapping, starts, at, len(at)).clone()]


def _gathers(tables: Any) -> list[torch.Tensor]:
    device = tables.slot_mappings.device
    out = tuple(torch.full_like(table, -3) for table in tables.input_block_tables)
    addresses = [table.data_ptr() for table in out]
    pointers = torch.tensor(addresses, dtype=torch.uint64, device=device)
    rows = torch.arange(len(out[0]), device=device)
    return [view.clone() for view in tables.gather_block_tables(rows, len(rows), out, pointers)]


def _gathers_persistently(tables: Any) -> list[torch.Tensor]:
    rows = torch.arange(len(tables.input_block_tables[0]), device=tables.slot_mappings.device)
    return [view.clone() for view in tables.gather_block_tables(rows, len(rows))]


def _maps(tables: Any) -> torch.Tensor:
    device = tables.slot_mappings.device
    most = min(table.shape[0] for table in tables.input_block_tables)
    rows = torch.arange(most, device=device)[:2]
    starts = torch.arange(len(rows) + 1, dtype=torch.int32, device=device)
    slots: torch.Tensor = tables.compute_slot_mappings(
        rows, starts, torch.zeros_like(rows), len(rows)
    )
    return slots.clone()


def _maps_elsewhere(tables: Any) -> list[torch.Tensor]:
    device = tables.slot_mappings.device
    rows = torch.zeros(1, dtype=torch.int64, device=device)
    starts = torch.tensor([0, 1], dtype=torch.int32, device=device)
    out = torch.full((len(tables.block_sizes), 7), -3, device=device)
    return [tables.compute_slot_mappings(rows, starts, rows, 1, out=out), out]


def _replaces(tables: Any) -> list[torch.Tensor]:
    for group, table in enumerate(tables.block_tables):
        table.gpu = table.gpu.clone()
        tables.input_block_tables[group] = tables.input_block_tables[group].clone()
    tables.slot_mappings = tables.slot_mappings.clone()
    tables.init_block_table_layout_tensors()
    return [table.gpu.clone() for table in tables.block_tables]


def _appends(tables: Any) -> list[torch.Tensor]:
    """Staged after the apply, so not in the tables before the next one."""
    ids = tuple([9] for _ in tables.block_sizes)
    tables.append_block_ids(0, ids, overwrite=True)
    found = [tables.num_blocks.gpu.clone(), *(table.gpu.clone() for table in tables.block_tables)]
    tables.apply_staged_writes()
    return [*found, tables.num_blocks.gpu.clone()]


REPLACES = "init_block_table_layout_tensors"
PERSISTENT = "gather_block_tables, persistent"
READERS: dict[str, Callable[[Any], Any]] = {
    "gather_block_tables": _gathers,
    PERSISTENT: _gathers_persistently,
    "compute_slot_mappings": _maps,
    "compute_slot_mappings, out": _maps_elsewhere,
    REPLACES: _replaces,
    "append_block_ids": _appends,
    "block_tables": lambda tables: [table.gpu.clone() for table in tables.block_tables],
    "block_table_ptrs": lambda tables: tables.block_table_ptrs.shape,
    "num_blocks": lambda tables: tables.num_blocks.gpu.clone(),
    "input_block_tables": lambda tables: [t.clone() for t in tables.input_block_tables],
    "get_dummy_block_tables": lambda tables: [
        view.clone() for view in tables.get_dummy_block_tables(1)
    ],
    "get_dummy_slot_mappings": lambda tables: tables.get_dummy_slot_mappings(1).clone(),
    "apply_staged_writes": lambda tables: tables.apply_staged_writes(),
    "apply_write": lambda tables: tables.block_tables[0].apply_write(),
}
"""Functions that read tables, some of which write first; not for tables without groups.

Between gather and slots `PERSISTENT` fills the rows that the step returns. `REPLACES` replaces the
tensors, so graphs that were captured before are void.
"""
