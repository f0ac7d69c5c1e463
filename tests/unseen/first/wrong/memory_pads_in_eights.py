"""Fault: padding of a caller's slots is stored eight at a time, without a mask for the last ones.

Seen: up to seven slots behind the end of each row of out are PAD, where the caller's buffer
goes on.

It ends the process where nothing that may be written lies behind the buffer.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.layout import PAD_SLOT_ID


@triton.jit(do_not_specialize=["first", "end"])
def _pad_kernel(slots, first, end, PAD: tl.constexpr, WIDTH: tl.constexpr):
    """Pads from `first` on."""
    for block in range(first, end, WIDTH):
        tokens = block + tl.arange(0, WIDTH)
        tl.store(slots + tokens, tl.full([WIDTH], PAD, dtype=tl.int64))


class Variant(DeviceBlockTables):
    """Padding by a kernel of its own."""

    capturable = frozenset({"gather_block_tables"})

    def _launch_slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        out: torch.Tensor | None,
    ) -> None:
        super()._launch_slots(idx_mapping, query_start_loc, positions, out)
        if out is None or not out.shape[1]:
            return
        for group in range(out.shape[0]):
            first = int(query_start_loc[idx_mapping.numel()])
            _pad_kernel[(1, 1, 1)](out[group], first, out.shape[1], PAD_SLOT_ID, 8)
