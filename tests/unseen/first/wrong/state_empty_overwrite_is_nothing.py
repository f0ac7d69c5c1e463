"""Fault: an overwrite with empty lists for all groups stages no write.

Seen: overwrite a row with no blocks and apply: num_blocks is 0, but a gather still copies the
old blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Nothing to write, nothing staged."""

    native = False

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        super().append_block_ids(req_index, new_block_ids, overwrite)
        if overwrite and not any(len(ids) for ids in new_block_ids):
            for intervals in self._staged._groups:
                intervals.pop(index(req_index), None)
