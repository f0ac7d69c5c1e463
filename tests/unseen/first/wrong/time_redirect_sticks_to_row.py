"""Fault: a row that was written while writes were redirected stays redirected until it is
overwritten.

Seen: overwrite a row during warm-up, end the warm-up, append to the row: the appended ids are
0.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """Rows of a warm-up hold null blocks only."""

    _warm: frozenset[int] = frozenset()

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        before = self.redirect_writes_to_null_block
        self.redirect_writes_to_null_block = before or (not overwrite and req_index in self._warm)
        try:
            super().append_block_ids(req_index, new_block_ids, overwrite)
        finally:
            self.redirect_writes_to_null_block = before
        if before:
            self._warm |= {index(req_index)}
        elif overwrite:
            self._warm -= {index(req_index)}
