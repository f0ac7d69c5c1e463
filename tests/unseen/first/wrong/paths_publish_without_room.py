"""Fault: writes that are too many for the buffer of a captured step are cut off.

Seen: publish (or capture_step) with more ids than the buffer has room for: rows staged last are
never written.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """A burst of writes at a publication is made at once."""

    def _publish_for_replay(
        self,
        _idx_mapping: torch.Tensor,
        _query_start_loc: torch.Tensor,
        _positions: torch.Tensor,
        num_reqs_padded: int,
        _num_computed_tokens: torch.Tensor | None,
    ) -> None:
        self.refuse_capture("publish")
        writes = self._captured_writes
        assert writes is not None
        self._zero_dirty_rows(num_reqs_padded)
        if not writes.has_room(self._staged):
            writes.settle(self)
            for group, row, start, ids in self._staged.intervals()[: self.layout.max_num_reqs]:
                table = self.block_tables[group]
                table[row, start : start + len(ids)] = torch.tensor(ids, dtype=torch.int32)
                self.num_blocks_on_device[group, row] = start + len(ids)
            self._staged.clear()
        writes.publish(self, self._staged)
        self._staged.clear()
