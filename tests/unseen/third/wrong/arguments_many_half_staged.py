"""A refused `append_many` stays half staged if one row occurs twice in it.

Each request is checked against the blocks before the call, and staged after all checks.
"""

from __future__ import annotations

from bt_kernels.staging import checked_row, refuse_append, refuse_append_many, refuse_ids
from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Checks first, then stages one after the other."""

    def append_many(self, req_indices, new_block_ids, overwrite):
        if not len(req_indices) == len(new_block_ids) == len(overwrite):
            refuse_append_many(self.layout, self.num_blocks, req_indices, new_block_ids, overwrite)
        requests = list(zip(req_indices, new_block_ids, overwrite, strict=True))
        for given, lists, replace in requests:
            row = checked_row(self.layout, given)
            if len(lists) != self.layout.num_groups:
                refuse_append(self.layout, self.num_blocks, row, lists, replace)
            for group, ids in enumerate(lists):
                refuse_ids(group, ids)
                before = 0 if replace else int(self.num_blocks[group, row])
                if before + len(ids) > self.layout.widths[group]:
                    refuse_append(self.layout, self.num_blocks, row, lists, replace)
        for request in requests:
            self.append_block_ids(*request)
