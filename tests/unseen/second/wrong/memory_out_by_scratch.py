"""Overwrites the columns of `out` behind a live row's blocks.

It shows when `out` held something there, which must be kept: rows are gathered into scratch tables
first, and copied from there as a whole.
"""

import torch

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """As baseline, with one scratch table for each group, so that addresses never change."""

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._scratch = [torch.zeros_like(table) for table in self.input_block_tables]
        addresses = [table.data_ptr() for table in self._scratch]
        self._scratch_ptrs = torch.tensor(addresses, device=self.device)

    def gather_block_tables(
        self, idx_mapping, num_reqs_padded, out=None, out_ptrs=None, num_computed_tokens=None
    ):
        if out is None:
            return super().gather_block_tables(
                idx_mapping, num_reqs_padded, None, out_ptrs, num_computed_tokens
            )
        self._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        found = super().gather_block_tables(
            idx_mapping, num_reqs_padded, self._scratch, self._scratch_ptrs, num_computed_tokens
        )
        views = self._views(num_reqs_padded, out)
        for view, table in zip(views, found, strict=True):
            view.copy_(table)
        return views
