"""Changes the caller's `positions`: those below 0 become 0.

It shows when a negative position is given and the tensor is used for another call (its slot is PAD
only at the first one), or is compared with what it was.
"""

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """As baseline, with positions that kernels after it can use without a check."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        super()._launch_slots(idx_mapping, query_start_loc, positions, out)
        positions.clamp_(min=0)
