"""As one_launch, but a snapshot copies all tables in one launch (1 launch a step).

Wrong: numbers of blocks are taken with `np.asarray`, which does not copy an array. So the snapshot
changes with the tables that it is of.

Shows: a snapshot, an append that changes a number of blocks, and restoring the snapshot.
"""

import numpy as np
import torch

from bt_kernels.interface import TableState
from bt_kernels.variants.one_launch import Variant as Base


class Variant(Base):
    """Replaces `snapshot`."""

    def snapshot(self):
        tables = [*self.block_tables, *self.input_block_tables]
        copied = torch.cat([table.view(-1) for table in tables])
        parts = copied.split([table.numel() for table in tables])
        saved = [part.view_as(table) for part, table in zip(parts, tables, strict=True)]
        num_groups = self.layout.num_groups
        return TableState(
            saved[:num_groups],
            saved[num_groups:],
            self.slot_mappings.clone(),
            np.asarray(self.num_blocks),
            self.num_dirty_rows,
        )
