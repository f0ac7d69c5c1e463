"""A refused `append_many` takes back more than it staged: what its rows had staged before is lost.

Requests are staged one by one. When one is refused, numbers of blocks are put back, and the rows staged
so far are dropped from the staged writes, with all that earlier calls of the step had staged for them.
"""

from __future__ import annotations

from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Stages many requests as single ones, and undoes that."""

    native = False  # what is staged is looked into

    def append_many(self, req_indices, new_block_ids, overwrite):
        if not len(req_indices) == len(new_block_ids) == len(overwrite):
            raise ValueError("req_indices, new_block_ids and overwrite are not of one length")
        before, done = self.num_blocks.copy(), []
        try:
            for row, ids, replaces in zip(req_indices, new_block_ids, overwrite, strict=True):
                self.append_block_ids(row, ids, replaces)
                done.append(row)
        except ValueError:
            self.num_blocks[:] = before
            for intervals in self._staged._groups:
                for row in done:
                    intervals.pop(row, None)
            raise
