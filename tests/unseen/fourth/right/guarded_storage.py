"""All tables and slots are views of one storage, at odd places, with guards of old numbers between them.

Apart from where its memory is, it is `fused`. Rows begin at no multiple of 16 bytes.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused import Variant as Base


GUARD, GUARD_ID = 37, 1_111_111


class Variant(Base):
    """Tables in one storage."""

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        rows = layout.max_num_reqs
        num_slots = 2 * self.slot_mappings.numel()
        sizes = [rows * width for width in layout.widths]
        total = num_slots + GUARD + sum(2 * (size + GUARD) for size in sizes)
        self.storage = torch.full((total,), GUARD_ID, dtype=torch.int32, device=self.device)
        self.slot_mappings = (
            self.storage[:num_slots].view(torch.int64).view(self.slot_mappings.shape)
        )
        first = num_slots + GUARD
        for tables in (self.input_block_tables, self.block_tables):
            for group, size in enumerate(sizes):
                tables[group] = self.storage[first : first + size].view(rows, -1)
                tables[group].zero_()
                first += size + GUARD
        self.slot_mappings.fill_(PAD_SLOT_ID)
        self.init_block_table_layout_tensors()
