"""Fault: the addresses of a caller's tables are found by their width, so that groups of the same
width share one.

Seen: with out and two groups of the same width, the first one's out is not written, and the
second one's is written twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Groups of one width have one layout."""

    def _options(
        self,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None,
        out_ptrs: torch.Tensor | None,
        num_computed_tokens: torch.Tensor | None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        computed, ptrs = super()._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        if out is None or out_ptrs is not None:
            return computed, ptrs
        by_width = {table.shape[1]: table.data_ptr() for table in out}
        addresses = [by_width[width] for width in self.layout.widths]
        return computed, torch.tensor(addresses, device=self.device)
