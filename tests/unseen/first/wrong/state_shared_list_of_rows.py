"""Fault: the rows whose number of blocks changed are in a set of the class, which all tables in a
process share, and which an apply empties.

Seen: with two sets of tables, stage in both and apply the first, then the second: the second
one's gather has the old numbers of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """Counts what was touched."""

    _touched: set[int] = set()  # noqa: RUF012

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        super().append_block_ids(req_index, new_block_ids, overwrite)
        self._touched.add(index(req_index))

    def append_many(
        self,
        req_indices: Sequence[int],
        new_block_ids: Sequence[Sequence[Sequence[int]]],
        overwrite: Sequence[bool],
    ) -> None:
        super().append_many(req_indices, new_block_ids, overwrite)
        self._touched.update(map(index, req_indices))

    def _launch_apply(self, records_per_group: list[int]) -> None:
        before = self.num_blocks_on_device.clone()
        super()._launch_apply(records_per_group)
        for row in range(self.layout.max_num_reqs):
            if row not in self._touched:
                self.num_blocks_on_device[:, row] = before[:, row]
        self._touched.clear()
