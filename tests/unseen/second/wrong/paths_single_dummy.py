"""Maps a single dummy request as if it had the last row of the tables.

It shows in a batch of one request that is -1: the quick path for one request indexes the table with
it, as Python does, and its tokens get slots instead of PAD.
"""

import torch

from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.layout import PAD_SLOT_ID


class Variant(DeviceBlockTables):
    """As baseline, without a kernel for the slots of one request."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if idx_mapping.shape[0] != 1 or out is not None or self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        row, num_tokens = int(idx_mapping[0]), int(query_start_loc[1])
        its_positions = positions[:num_tokens]
        self.slot_mappings.fill_(PAD_SLOT_ID)
        layout = self.layout
        for group, (size, width) in enumerate(zip(layout.block_sizes, layout.widths, strict=True)):
            if not layout.slot_mapping_enabled[group]:
                continue
            column = torch.div(its_positions, size, rounding_mode="floor")
            inside = (column >= 0) & (column < width)
            ids = self.block_tables[group][row, column.clamp(0, width - 1)].long()
            slots = torch.where(inside, ids * size + its_positions % size, PAD_SLOT_ID)
            self.slot_mappings[group, :num_tokens] = slots
