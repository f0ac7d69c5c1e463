"""Kernels get copies of all arguments, and write to tables and slots of their own, which are copied back.

Mappings become int64, lengths are those of the batch, and the caller's tables are filled row by row from
the copy. Checks are made on what the caller gave.
"""

from __future__ import annotations

import torch

from bt_kernels import launches
from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Works on copies."""

    capturable = frozenset()

    def _options(self, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        self._out = out
        return super()._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        idx_mapping = idx_mapping.to(torch.int64, copy=True)
        if num_computed_tokens is not None:
            num_computed_tokens = num_computed_tokens[: self.layout.max_num_reqs].clone()
        targets = self.input_block_tables if out_ptrs is None else self._out
        # Held, so that it can be seen whose memory kernels have addresses of.
        self._copies = copies = [target[:num_rows].clone() for target in targets]
        addresses = [copy.data_ptr() for copy in copies]
        addresses = torch.tensor(addresses, dtype=torch.int64, device=self.device)
        launches.gather(self, idx_mapping, num_rows, num_computed_tokens, addresses)
        for target, copy in zip(targets, copies, strict=True):
            for row in reversed(range(num_rows)):
                target[row] = copy[row]

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        idx_mapping = idx_mapping.to(torch.int64, copy=True)
        target = self.slot_mappings if out is None else out
        copy = torch.empty(target.shape, dtype=torch.int64, device=self.device)
        starts = query_start_loc[: idx_mapping.shape[0] + 1].clone()
        launches.slots(self, idx_mapping, starts, positions[: int(starts[-1])].clone(), copy)
        target.copy_(copy)

    def gather_and_compute_slot_mappings(
        self,
        idx_mapping,
        query_start_loc,
        positions,
        num_reqs_padded,
        num_tokens_padded,
        *,
        out=None,
        out_ptrs=None,
        num_computed_tokens=None,
        slots_out=None,
    ):
        out_ptrs = self._check_step(
            *(idx_mapping, query_start_loc, positions, num_reqs_padded, num_tokens_padded),
            *(out, out_ptrs, num_computed_tokens, slots_out),
        )
        slots = (idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out)
        mapped = self.compute_slot_mappings(*slots)
        rows = (idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens)
        return self.gather_block_tables(*rows), mapped
