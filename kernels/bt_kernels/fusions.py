"""The two fusions, as parts that variants are put together from."""

from __future__ import annotations

import torch

from bt_kernels import launches
from bt_kernels.device_tables import DeviceBlockTables


class FusedApply(DeviceBlockTables):
    """All groups' staged writes in one launch."""

    def _launch_apply(self, records_per_group: list[int]) -> None:
        launches.apply_writes(self, self._ring.current, 0, sum(records_per_group))


class FusedGatherSlots(DeviceBlockTables):
    """Gather and slots in one launch."""

    def gather_and_compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        self._check_tokens(num_tokens_padded)
        num_rows = self._rows_to_gather(idx_mapping, num_reqs_padded)
        launches.gather_slots(
            self, self._ring.current, idx_mapping, query_start_loc, positions, num_rows
        )
        return (
            tuple(table[:num_reqs_padded] for table in self.input_block_tables),
            self.slot_mappings[:, :num_tokens_padded],
        )
