"""Fault: ids of numpy arrays are converted to int32 without a look at their range.

Seen: an append of np.array([2**31 + 5]) is accepted and writes 5 - 2^31; lists are refused as
they should be.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Converts arrays at once."""

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        if not isinstance(new_block_ids, (list, tuple)):
            super().append_block_ids(req_index, new_block_ids, overwrite)
            return
        lists = [
            ids.astype(np.int32).tolist()
            if isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype.kind in "iu"
            else ids
            for ids in new_block_ids
        ]
        super().append_block_ids(req_index, lists, overwrite)
