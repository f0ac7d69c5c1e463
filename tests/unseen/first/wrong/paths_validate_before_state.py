"""Fault: with validate, the combined operations look at the rows up to num_reqs_padded of the last
call, kept from before.

Seen: with validate=True, the first call after a longer one is refused though its mapping is
right.
"""

from __future__ import annotations

import torch

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Refuses starts that were left behind the batch."""

    _rows_seen = 0

    def _check_slots(
        self,
        num_reqs: int,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None,
    ) -> torch.Tensor:
        seen, self._rows_seen = self._rows_seen, num_reqs
        if self.validate and seen > num_reqs and query_start_loc.numel() > seen:
            raise ValueError(f"query_start_loc[{seen}] is behind the batch of {num_reqs}")
        return super()._check_slots(
            num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, out
        )
