"""One function per kernel: grid and arguments of its launch.

Block shapes are those of vLLM's kernels (1024 elements) for gather, slots and padding. A staged
write is mostly a few block ids, and a chunk of 2048 tokens 128 of them: 128 elements for those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bt_kernels.device_code import (
    apply_writes_kernel,
    gather_kernel,
    gather_slots_kernel,
    slots_kernel,
)
from bt_kernels.layout import PAD_SLOT_ID

if TYPE_CHECKING:
    import torch

    from bt_kernels.device_tables import DeviceBlockTables

WRITE_BLOCK = 128
ROW_BLOCK = 1024


def apply_writes(
    tables: DeviceBlockTables, staging: torch.Tensor, first_record: int, num_records: int
) -> None:
    """Writes `num_records` records of `staging` into the source tables."""
    apply_writes_kernel[(num_records,)](
        tables.descriptors, staging, tables.num_blocks.size, first_record, BLOCK=WRITE_BLOCK
    )


def gather(
    tables: DeviceBlockTables, num_blocks: torch.Tensor, idx_mapping: torch.Tensor, num_rows: int
) -> None:
    """Gathers the batch's rows and zeroes further ones up to `num_rows`."""
    layout = tables.layout
    gather_kernel[(layout.num_groups, num_rows)](
        tables.descriptors,
        idx_mapping,
        num_blocks,
        layout.max_num_reqs,
        idx_mapping.shape[0],
        BLOCK=ROW_BLOCK,
    )


def slots(
    tables: DeviceBlockTables,
    idx_mapping: torch.Tensor,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
) -> None:
    """Computes the slots of the batch's tokens and pads the rest of the buffer."""
    layout = tables.layout
    num_reqs = idx_mapping.shape[0]
    slots_kernel[(layout.num_groups, num_reqs + 1)](
        tables.descriptors,
        idx_mapping,
        query_start_loc,
        positions,
        tables.slot_mappings,
        layout.max_num_batched_tokens,
        num_reqs,
        PAD=PAD_SLOT_ID,
        BLOCK=ROW_BLOCK,
    )


def gather_slots(
    tables: DeviceBlockTables,
    num_blocks: torch.Tensor,
    idx_mapping: torch.Tensor,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    num_rows: int,
) -> None:
    """Does what `gather` and `slots` do, in one launch."""
    layout = tables.layout
    num_reqs = idx_mapping.shape[0]
    gather_slots_kernel[(layout.num_groups, num_rows + num_reqs + 1)](
        tables.descriptors,
        idx_mapping,
        num_blocks,
        layout.max_num_reqs,
        query_start_loc,
        positions,
        tables.slot_mappings,
        layout.max_num_batched_tokens,
        num_reqs,
        num_rows,
        PAD=PAD_SLOT_ID,
        BLOCK=ROW_BLOCK,
    )
