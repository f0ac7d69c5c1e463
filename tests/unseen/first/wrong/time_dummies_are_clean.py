"""Fault: rows that get_dummy_block_tables returned are not counted as dirty.

Seen: a caller fills the rows of get_dummy_block_tables; the next, smaller gather does not zero
them.
"""

from __future__ import annotations

import torch

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """The rows were just zeroed."""

    def get_dummy_block_tables(self, num_reqs: int) -> tuple[torch.Tensor, ...]:
        views = super().get_dummy_block_tables(num_reqs)
        self.num_dirty_rows = 0
        return views
