"""Fault: get_dummy_block_tables zeroes the rows that it returns, and forgets that others are
dirty.

Seen: gather 4 requests, ask for 1 dummy row: input rows 1 to 3 keep their ids, then and after
the next gather.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import arguments
from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Zeroes what is read."""

    def get_dummy_block_tables(self, num_reqs: int) -> tuple[torch.Tensor, ...]:
        arguments.check_size("num_reqs", num_reqs, self.layout.max_num_reqs, "max_num_reqs")
        for table in self.input_block_tables:
            table[:num_reqs].zero_()
        self.num_dirty_rows = num_reqs
        return self._views_of_tables(num_reqs)
