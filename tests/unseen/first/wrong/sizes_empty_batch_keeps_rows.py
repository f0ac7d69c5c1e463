"""Fault: a gather of no requests returns at once.

Seen: with an empty mapping, dirty rows and rows up to num_reqs_padded are not zeroed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.device_tables import arguments
from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """No requests, no work."""

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        if idx_mapping.numel() == 0 and out is None and self.num_dirty_rows > 1:
            arguments.check_mapping(self.layout, self.device, idx_mapping)
            arguments.check_rows(self.layout, 0, num_reqs_padded)
            self._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
            self.num_dirty_rows = 0
            return self._views(num_reqs_padded, None)
        return super().gather_block_tables(
            idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens
        )
