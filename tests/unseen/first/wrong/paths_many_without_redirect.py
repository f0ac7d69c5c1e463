"""Fault: append_many does not redirect writes to the null block.

Seen: with redirect_writes_to_null_block, ids staged by append_many reach the tables; those of
append_block_ids are 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from bt_kernels.staging import refuse_append_many
from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Stages all requests by one call."""

    def append_many(
        self,
        req_indices: Sequence[int],
        new_block_ids: Sequence[Sequence[Sequence[int]]],
        overwrite: Sequence[bool],
    ) -> None:
        if not self._staged.append_many(req_indices, new_block_ids, overwrite, False):
            refuse_append_many(self.layout, self.num_blocks, req_indices, new_block_ids, overwrite)
