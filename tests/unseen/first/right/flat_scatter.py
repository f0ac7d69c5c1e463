"""Right: all writes of a group in one index_put on the flat table."""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """Scatters."""

    def _launch_apply(self, records_per_group: list[int]) -> None:
        places: list[list[int]] = [[] for _ in records_per_group]
        values: list[list[int]] = [[] for _ in records_per_group]
        for group, row, start, ids in self._staged.intervals():
            first = row * self.layout.widths[group] + start
            places[group] += range(first, first + len(ids))
            values[group] += ids
            self.num_blocks_on_device[group, row] = start + len(ids)
        for table, where, what in zip(self.block_tables, places, values, strict=True):
            new = torch.tensor(what, dtype=torch.int32, device=self.device)
            at = torch.tensor(where, dtype=torch.int64, device=self.device)
            table.view(-1).index_put_((at,), new)
