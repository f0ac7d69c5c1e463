"""Fault: an append is staged group by group, so that a refusal in a later group leaves the earlier
ones staged.

Seen: after a refused append (group 1 too wide) num_blocks of group 0 has grown, and an apply
writes its ids.
"""

from __future__ import annotations

from collections.abc import Sequence

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """One group at a time, as vLLM does it."""

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        groups = self.layout.num_groups
        if overwrite or not isinstance(new_block_ids, list) or len(new_block_ids) != groups:
            super().append_block_ids(req_index, new_block_ids, overwrite)
            return
        for group, ids in enumerate(new_block_ids):
            lists = [ids if other == group else [] for other in range(groups)]
            super().append_block_ids(req_index, lists, False)
