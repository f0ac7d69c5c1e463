"""Looks for requests whose window has moved on among the first entries of `num_computed_tokens`.

It shows when only rows at or past the size of the batch have computed more than the reach: the path
without a window is taken, since the entries go by request row and not by batch index.
"""

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """As baseline, with the plain gather as long as every window begins at column 0."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        num_reqs = idx_mapping.shape[0]
        if num_computed_tokens is not None and num_reqs:
            reach = min(reach for reach in self.layout.reaches if reach)
            if int(num_computed_tokens[:num_reqs].max()) <= reach:
                num_computed_tokens = None
        super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
