"""Fault: redirect_writes_to_null_block is read when writes are applied, not when they are staged.

Seen: stage ids while the attribute is true and make it false before the apply: real ids reach
the table; and the other way round.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from bt_kernels.fusions import FusedApply
from bt_kernels.staging import refuse_append, refuse_append_many


class Variant(FusedApply):
    """The null block is substituted in one place."""

    native = False

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        if not self._staged.append(req_index, new_block_ids, overwrite, False):
            refuse_append(self.layout, self.num_blocks, req_index, new_block_ids, overwrite)

    def append_many(
        self,
        req_indices: Sequence[int],
        new_block_ids: Sequence[Sequence[Sequence[int]]],
        overwrite: Sequence[bool],
    ) -> None:
        if not self._staged.append_many(req_indices, new_block_ids, overwrite, False):
            refuse_append_many(self.layout, self.num_blocks, req_indices, new_block_ids, overwrite)

    def _publish(self) -> list[int]:
        if self.redirect_writes_to_null_block:
            for intervals in self._staged._groups:
                for row, (start, ids) in intervals.items():
                    intervals[row] = (start, array("i", [0]) * len(ids))
        return super()._publish()
