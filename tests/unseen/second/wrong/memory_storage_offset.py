"""Reads `positions` from the beginning of their storage.

It shows when `positions` is a slice of a longer buffer that does not begin at its first element,
as when a step is split into micro-batches: the positions of other tokens are used.
"""

import torch

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """As baseline, with positions freed of whatever subclass of tensor the caller has."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        plain = torch.empty(0, dtype=positions.dtype, device=positions.device)
        plain.set_(positions.untyped_storage(), 0, positions.shape, (1,))
        super()._launch_slots(idx_mapping, query_start_loc, plain, out)
