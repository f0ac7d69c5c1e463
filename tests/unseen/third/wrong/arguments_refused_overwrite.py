"""A refused overwrite has dropped what was staged for the row.

It forgets the writes before it looks whether the new ones fit.
"""

from __future__ import annotations

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Drops the writes of a row itself."""

    native = False

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        if overwrite and len(new_block_ids) == self.layout.num_groups:
            for intervals in self._staged._groups:
                intervals.pop(req_index, None)
        super().append_block_ids(req_index, new_block_ids, overwrite)
