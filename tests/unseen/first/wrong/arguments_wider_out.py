"""Fault: an out with more columns than the table is accepted for a gather, and its left part
filled.

Seen: a gather with an out of width + 1 columns is done; a ValueError is to be raised.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.variants.fused_gather_slots import Variant as GatherSlots


class Variant(GatherSlots):
    """Takes the left part of wider tables."""

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        widths = self.layout.widths
        if out is None or out_ptrs is not None or len(out) != len(widths):
            return super().gather_block_tables(
                idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens
            )
        exact = [
            table[:, :width].contiguous() if table.dim() == 2 else table
            for table, width in zip(out, widths, strict=True)
        ]
        if all(table.shape == given.shape for table, given in zip(exact, out, strict=True)):
            exact = list(out)
        views = super().gather_block_tables(
            idx_mapping, num_reqs_padded, exact, None, num_computed_tokens
        )
        for given, table, width in zip(out, exact, widths, strict=True):
            if given is not table:
                given[:, :width] = table
        return tuple([given[: view.shape[0], : view.shape[1]] for given, view in zip(out, views)])  # noqa: B905
