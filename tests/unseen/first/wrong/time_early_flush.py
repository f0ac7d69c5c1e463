"""Fault: staging applies what is there once 64 rows are pending.

Seen: after staging for more than 64 rows, source tables and gathers show the ids before any
apply.
"""

from __future__ import annotations

from collections.abc import Sequence

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Bounds the size of the host buffer."""

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        super().append_block_ids(req_index, new_block_ids, overwrite)
        if self._staged.num_records > 64:
            self.apply_staged_writes()
