"""First columns of sliding windows are kept in a buffer that all tables of a layout share.

Shows with two tables of one layout in a process: a windowed gather of one, one of the other with
other computed tokens, and again one of the first with what it had: it has the other's windows.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, WIDTH
from bt_kernels.device_code.parts import _row, _target
from bt_kernels.variants.fused_apply import Variant as Base


@lru_cache(None)
def _constants(layout, device):
    """Reaches, block sizes, and room for first columns: the same for all tables of a layout."""
    reaches = torch.tensor(layout.reaches, dtype=torch.int64, device=device)[:, None]
    sizes = torch.tensor(layout.block_sizes, dtype=torch.int64, device=device)[:, None]
    shape = (layout.num_groups, layout.max_num_reqs)
    return reaches, sizes, torch.zeros(shape, dtype=torch.int64, device=device)


@triton.jit(do_not_specialize=["num_reqs", "max_num_reqs"])
def gather_window_kernel(
    descriptors, idx_mapping, num_reqs, first_columns, max_num_reqs, out_ptrs, BLOCK: tl.constexpr
):
    """As the shipped gather, with first columns that are known; grid `(G, rows)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    counts = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    target = _target(descriptor, out_ptrs, group) + batch_index * width
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    length = tl.load(counts + row, mask=row >= 0, other=0)
    begin = tl.load(first_columns + group * max_num_reqs + row, mask=row >= 0, other=0)
    written = tl.where(row < 0, width.to(tl.int32), length)
    for first in range(0, written, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        live = (columns < length) & (columns >= begin)
        ids = tl.load(source + row * width + columns, mask=live, other=0)
        tl.store(target + columns, ids, mask=columns < written)


class Variant(Base):
    """Divides once per row and step, and not at all if nothing was computed meanwhile."""

    _last_computed = None

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is None:
            super()._launch_gather(idx_mapping, num_rows, None, out_ptrs)
            return
        limit = self.layout.max_num_reqs
        reaches, sizes, first_columns = _constants(self.layout, self.device)
        computed = num_computed_tokens[:limit]
        if self._last_computed is None or not torch.equal(self._last_computed, computed):
            behind = torch.clamp(computed.long()[None, :] - reaches, min=0)
            first_columns.copy_(torch.where(reaches > 0, behind // sizes, 0))
            self._last_computed = computed.clone()
        self.launch(
            gather_window_kernel,
            (self.layout.num_groups, num_rows, 1),
            (
                self.descriptors,
                idx_mapping,
                idx_mapping.shape[0],
                first_columns,
                limit,
                out_ptrs,
            ),
            (1024,),
            (idx_mapping, out_ptrs),
        )
