"""Fault: a request row below 0 counts from the end, as in Python.

Seen: append_block_ids(-1, ...) is accepted and stages for the last row; a ValueError is to be
raised.
"""

from __future__ import annotations

from collections.abc import Sequence

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Rows as Python has them."""

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        if isinstance(req_index, int) and -self.layout.max_num_reqs <= req_index < 0:
            req_index += self.layout.max_num_reqs
        super().append_block_ids(req_index, new_block_ids, overwrite)
