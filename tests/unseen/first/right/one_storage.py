"""Right: all tables are views of one storage, with odd gaps between them."""

from __future__ import annotations

import torch

from bt_kernels.layout import TableLayout
from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """As fused, with its own memory."""

    def __init__(self, layout: TableLayout, device: torch.device | str, **options: object) -> None:
        super().__init__(layout, device, **options)
        gap, rows = 37, layout.max_num_reqs
        size = sum(2 * (rows * width + gap) for width in layout.widths)
        self._storage = torch.zeros(size + gap, dtype=torch.int32, device=self.device)
        place = gap
        for tables in (self.block_tables, self.input_block_tables):
            for group, width in enumerate(layout.widths):
                end = place + rows * width
                tables[group] = self._storage[place:end].view(rows, width)
                place = end + gap
        self.init_block_table_layout_tensors()
