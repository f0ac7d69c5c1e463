"""Slots in the null block become PAD, since nothing must be written into block 0.

Shows for each token whose column holds 0: a redirected write, a column that no one wrote, or an id
0. The formula gives slots from 0 to block_size - 1 for them.
"""

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """Keeps warm-up tokens out of the cache."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        super()._launch_slots(idx_mapping, query_start_loc, positions, out)
        target = self.slot_mappings if out is None else out
        for slots, size in zip(target, self.layout.block_sizes, strict=True):
            slots.masked_fill_((slots >= 0) & (slots < size), PAD_SLOT_ID)
