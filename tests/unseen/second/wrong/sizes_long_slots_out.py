"""Pads a caller's buffer of slots only as far as the tables' own buffer would reach.

It shows when `out` of slots has more columns than `max_num_batched_tokens`: what lies behind that
many slots keeps what it held.
"""

from bt_kernels.device_code import slots_options_kernel
from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.layout import PAD_SLOT_ID


class Variant(DeviceBlockTables):
    """As baseline, with a bound on the slots to pad."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if out is None:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        size = min(out.shape[1], self.layout.max_num_batched_tokens)
        batch = (idx_mapping, query_start_loc, positions, num_reqs)
        self.launch(
            slots_options_kernel,
            (self.layout.num_groups, num_reqs + 1, 1),
            (self.descriptors, *batch, out, out.stride(0), size),
            (self.sharded, PAD_SLOT_ID, 1024),
            (idx_mapping, out),
        )
