"""Fault: num_reqs_padded may be below the batch if the requests behind it are dummies.

Seen: a gather with mapping [2, -1, -1] and num_reqs_padded 1 is accepted; a ValueError is to be
raised.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """Trailing dummies may be left out."""

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        if isinstance(num_reqs_padded, int) and num_reqs_padded < len(idx_mapping):
            rest = idx_mapping[max(num_reqs_padded, 0) :]
            if num_reqs_padded >= 0 and out is None and bool((rest == -1).all()):
                idx_mapping = idx_mapping[:num_reqs_padded].contiguous()
        return super().gather_block_tables(
            idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens
        )
