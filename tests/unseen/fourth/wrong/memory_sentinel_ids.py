"""Staged ids are spread over a table in which -2^31 stands for none: a block id of -2^31 is never written.

Any int32 is a legal id. The column of such an id keeps what it held, and is counted all the same.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import INT32_MIN
from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """Writes a group at once, where something is staged."""

    def _launch_apply(self, records_per_group):
        pending = [torch.full_like(table, INT32_MIN, device="cpu") for table in self.block_tables]
        for group, row, start, ids in self._staged.intervals():
            pending[group][row, start : start + len(ids)] = torch.tensor(ids, dtype=torch.int32)
            self.num_blocks_on_device[group, row] = start + len(ids)
        for table, new in zip(self.block_tables, pending, strict=True):
            new = new.to(self.device)
            table.copy_(torch.where(new != INT32_MIN, new, table))
