"""Fault: an overwrite that is refused drops what was staged for the row before.

Seen: append to a row, overwrite it with too many blocks (refused), apply: the appended ids are
missing, though num_blocks counts them.
"""

from __future__ import annotations

from collections.abc import Sequence

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Makes room before it stages."""

    native = False

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        if overwrite and isinstance(req_index, int):
            for intervals in self._staged._groups:
                intervals.pop(req_index, None)
        super().append_block_ids(req_index, new_block_ids, overwrite)
