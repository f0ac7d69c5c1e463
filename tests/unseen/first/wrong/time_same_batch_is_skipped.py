"""Fault: slots of a batch equal to the last one are not computed again if nothing was applied or
restored since; get_dummy_slot_mappings does not count.

Seen: slots, get_dummy_slot_mappings, and slots of the same batch: all are PAD.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.interface import TableState


class Variant(DeviceBlockTables):
    """A repeated batch costs a comparison."""

    _last: list[torch.Tensor] | None = None
    capturable = frozenset({"gather_block_tables"})

    def _launch_slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        out: torch.Tensor | None,
    ) -> None:
        if out is None and self._captured_writes is None:
            batch = [idx_mapping, query_start_loc[: idx_mapping.numel() + 1], positions]
            last, self._last = self._last, [tensor.clone() for tensor in batch]
            if last is not None and all(map(torch.equal, last, batch)):
                return
        super()._launch_slots(idx_mapping, query_start_loc, positions, out)

    def _launch_apply(self, records_per_group: list[int]) -> None:
        self._last = None
        super()._launch_apply(records_per_group)

    def restore(self, state: TableState) -> None:
        self._last = None
        super().restore(state)
