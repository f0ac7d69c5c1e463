"""Ignores `num_computed_tokens` in a gather into the caller's tables.

It shows when a call has both options, and a window that has moved on: columns before the window
are copied into `out` instead of zeroed.
"""

from bt_kernels import launches
from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """As baseline, with one option at a time."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if out_ptrs is not None:
            launches.gather(self, idx_mapping, num_rows, out_ptrs=out_ptrs)
        else:
            launches.gather(self, idx_mapping, num_rows, num_computed_tokens)
