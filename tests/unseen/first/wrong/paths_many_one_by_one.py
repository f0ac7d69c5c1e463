"""Fault: append_many stages its requests one by one, so that those before a refused one stay
staged.

Seen: append_many with a second request that is too wide raises, but the first one's num_blocks
has changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Needs no code of its own."""

    def append_many(
        self,
        req_indices: Sequence[int],
        new_block_ids: Sequence[Sequence[Sequence[int]]],
        overwrite: Sequence[bool],
    ) -> None:
        sizes = {len(req_indices), len(new_block_ids), len(overwrite)}
        if len(sizes) != 1:
            super().append_many(req_indices, new_block_ids, overwrite)
        for request in zip(req_indices, new_block_ids, overwrite, strict=True):
            self.append_block_ids(*request)
