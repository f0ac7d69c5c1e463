"""Leaves groups without slot mapping out of the launch, and pads them only in slot_mappings.

Shows with slot_mapping_enabled false in a group and slots of the caller's own (out, slots_out):
the group's slots keep what they held.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from bt_kernels.device_code.parts import _pad_slots, _slots_of_request
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


@triton.jit(do_not_specialize=["num_reqs", "out_stride", "out_size"])
def enabled_slots_kernel(
    descriptors,
    groups,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    out,
    out_stride,
    out_size,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slots of the listed groups; grid `(groups, R + 1)`."""
    group = tl.load(groups + tl.program_id(0))
    batch_index = tl.program_id(1).to(tl.int64)
    if batch_index < num_reqs:
        _slots_of_request(
            descriptors,
            idx_mapping,
            query_start_loc,
            positions,
            out,
            out_stride,
            num_reqs,
            group,
            batch_index,
            SHARDED,
            PAD,
            BLOCK,
        )
    else:
        _pad_slots(
            descriptors, query_start_loc, out, out_stride, out_size, num_reqs, group, PAD, BLOCK
        )


class Variant(Base):
    """Only groups that have slots take part in the launch for slots."""

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        enabled = layout.slot_mapping_enabled
        self._off = [group for group, on in enumerate(enabled) if not on]
        on = [group for group, on in enumerate(enabled) if on]
        self._on = torch.tensor(on, dtype=torch.int64, device=self.device)

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if not self._off:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        if out is None:
            for group in self._off:
                self.slot_mappings[group].fill_(PAD_SLOT_ID)
        if not self._on.numel():
            return
        place = (None, None, None) if out is None else (out, out.stride(0), out.shape[1])
        num_reqs = idx_mapping.shape[0]
        self.launch(
            enabled_slots_kernel,
            (self._on.numel(), num_reqs + 1, 1),
            (self.descriptors, self._on, idx_mapping, query_start_loc, positions, num_reqs, *place),
            (self.sharded, PAD_SLOT_ID, 1024),
            (idx_mapping, out),
        )
