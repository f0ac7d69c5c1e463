"""Plain torch operations; the host never waits for the device."""

from __future__ import annotations

import torch

from page_kernels.interface import PageIndexTensors, PageIndices


class Variant(PageIndices):
    """Moves whole rows, since the number of pages is only known on the device.

    Ids past the pages of a request go to a spare element behind `indices`.
    """

    def __init__(self, page_table: torch.Tensor, page_size: int) -> None:
        super().__init__(page_table, page_size)
        self._with_spare = torch.cat([self.indices, self.indices.new_zeros(1)])
        self.indices = self._with_spare[:-1]
        self._columns = torch.arange(page_table.shape[1], device=page_table.device)

    def build(self, idx_mapping: torch.Tensor) -> PageIndexTensors:
        num_reqs = idx_mapping.shape[0]
        indptr, indices, last_page_len = self._views(num_reqs)
        lengths = self.staged.publish().index_select(0, idx_mapping)
        num_pages = (lengths + (self.page_size - 1)) // self.page_size
        indptr[:1].zero_()
        torch.cumsum(num_pages, 0, dtype=torch.int32, out=indptr[1:])
        torch.sub(lengths, (num_pages - 1).clamp(min=0) * self.page_size, out=last_page_len)
        used = self._columns < num_pages[:, None]
        places = torch.where(used, indptr[:-1, None] + self._columns, indices.shape[0])
        page_ids = self.page_table.index_select(0, idx_mapping)
        self._with_spare.scatter_(0, places.flatten(), page_ids.flatten())
        return indptr, indices, last_page_len
