"""Fault: one launch writes what is staged and gathers, without anything that makes one wait for
the other.

Seen: on a GPU a gathered row lacks ids of this step in some runs; one after the other, writes
come first. A program reads what another one of the launch writes.

Needs a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from bt_kernels.device_code import (
    RECORD_FIELDS,
    _gather_row,
    _write_record,
)
from bt_kernels.device_tables import arguments
from bt_kernels.fusions import FusedApply


@triton.jit(do_not_specialize=["num_records", "num_reqs"])
def _apply_gather_kernel(
    descriptors, staging, idx_mapping, num_records, num_reqs, BLOCK: tl.constexpr
):
    """Programs of the first group write all records; then each gathers a row."""
    group = tl.program_id(0).to(tl.int64)
    program = tl.program_id(1).to(tl.int64)
    if program < num_records:
        if group == 0:
            _write_record(descriptors, staging, program * RECORD_FIELDS, BLOCK)
    else:
        batch_index = program - num_records
        _gather_row(descriptors, idx_mapping, num_reqs, None, None, group, batch_index, BLOCK)


class Variant(FusedApply):
    """Apply and gather in one launch."""

    def prepare_step(
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
        batch = (idx_mapping, query_start_loc, positions)
        plain = out is None and out_ptrs is None and num_computed_tokens is None
        if not plain or not self._staged or self._captured_writes is not None:
            return super().prepare_step(
                *batch,
                num_reqs_padded,
                num_tokens_padded,
                out=out,
                out_ptrs=out_ptrs,
                num_computed_tokens=num_computed_tokens,
                slots_out=slots_out,
            )
        self.refuse_capture("prepare_step")
        sizes = (num_reqs_padded, num_tokens_padded)
        self._check_step(*batch, *sizes, None, None, None, slots_out)
        if self.validate:
            arguments.check_rows_exist(self.layout, idx_mapping)
        num_rows, dirty = self._rows_to_gather(idx_mapping.shape[0], num_reqs_padded, None)
        num_records = sum(self._publish())
        self.launch(
            _apply_gather_kernel,
            (self.layout.num_groups, num_records + num_rows, 1),
            (self.descriptors, self._ring.current, idx_mapping, num_records, idx_mapping.shape[0]),
            (128,),
            (idx_mapping,),
        )
        self._ring.note_reader()
        self._staged.clear()
        self.num_dirty_rows = dirty
        slots = self.compute_slot_mappings(*batch, num_tokens_padded, slots_out)
        return self._views(num_reqs_padded, None), slots
