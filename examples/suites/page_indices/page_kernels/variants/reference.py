"""The semantics in plain Python, on the CPU; never timed."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Variant:
    """The reference for checks of the other variants. It shares no code with them."""

    features = frozenset({"any_page_size"})

    def __init__(self, page_table: torch.Tensor, page_size: int) -> None:
        max_num_reqs, width = page_table.shape
        self.page_table = page_table
        self.page_size = page_size
        self.lengths = torch.zeros(max_num_reqs, dtype=torch.int32)
        self.indptr = torch.zeros(max_num_reqs + 1, dtype=torch.int32)
        self.indices = torch.zeros(max_num_reqs * width, dtype=torch.int32)
        self.last_page_len = torch.zeros(max_num_reqs, dtype=torch.int32)

    def set_lengths(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        for row, length in zip(rows, lengths, strict=True):
            self.lengths[row] = length

    def build(self, idx_mapping: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows = idx_mapping.tolist()
        total = 0
        self.indptr[0] = 0
        for request, row in enumerate(rows):
            length = int(self.lengths[row])
            num_pages = 0
            while num_pages * self.page_size < length:
                self.indices[total + num_pages] = self.page_table[row, num_pages]
                num_pages += 1
            total += num_pages
            self.indptr[request + 1] = total
            in_full_pages = max(num_pages - 1, 0) * self.page_size
            self.last_page_len[request] = length - in_full_pages
        return self.indptr[: len(rows) + 1], self.indices, self.last_page_len[: len(rows)]
