"""Fault: with validate, every negative row passes as a dummy request.

Seen: with validate=True a mapping with -2 is accepted; a ValueError is to be raised.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.device_tables import DeviceBlockTables, arguments


class Variant(DeviceBlockTables):
    """Rows below 0 are dummies."""

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        before, self.validate = self.validate, False
        try:
            if before and out is None and idx_mapping.dim() == 1 and len(idx_mapping):
                arguments.check_rows_exist(self.layout, idx_mapping.clamp(min=-1))
            else:
                self.validate = before
            return super().gather_block_tables(
                idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens
            )
        finally:
            self.validate = before
