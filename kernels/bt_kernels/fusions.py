"""The two fusions, as mix-ins for variants."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch

from bt_kernels import launches
from bt_kernels.device_tables import DeviceBlockTables, arguments
from bt_kernels.device_tables.warming import Inputs, NotedLaunches


class FusedApply(DeviceBlockTables):
    """All groups' staged writes in one launch."""

    def _launch_apply(self, records_per_group: list[int]) -> None:
        launches.apply_writes(self, self._ring.current, 0, sum(records_per_group))


class FusedGatherSlots(DeviceBlockTables):
    """Gather and slots in one launch."""

    def _note_launches(self, noted: NotedLaunches, inputs: Inputs) -> None:
        super()._note_launches(noted, inputs)
        options = product(inputs.mappings, inputs.windows, inputs.pointers, inputs.slots)
        for mapping, window, pointers, out in options:
            batch = (mapping, inputs.starts, inputs.positions)
            launches.gather_slots(noted, *batch, 1, window, pointers, out)

    def gather_and_compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        *,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
        slots_out: torch.Tensor | None = None,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        num_reqs = arguments.check_mapping(
            self.layout, self.device, idx_mapping, wide=out is not None
        )
        arguments.check_rows(self.layout, num_reqs, num_reqs_padded, wide=out is not None)
        window, ptrs = self._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        slots = self._check_slots(
            num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out
        )
        num_rows, dirty = self._rows_to_gather(num_reqs, num_reqs_padded, out)
        launches.gather_slots(
            self, idx_mapping, query_start_loc, positions, num_rows, window, ptrs, slots_out
        )
        self.num_dirty_rows = dirty
        return self._views(num_reqs_padded, out), slots
