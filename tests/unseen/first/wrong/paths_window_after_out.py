"""Fault: the window's absence is remembered from a call with out: the first gather without out
after it has no window either.

Seen: gather with out and no num_computed_tokens, then gather with them and without out: columns
before the window hold ids.
"""

from __future__ import annotations

import torch

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Drafts and targets take turns."""

    _plain = False

    def _launch_gather(
        self,
        idx_mapping: torch.Tensor,
        num_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out_ptrs: torch.Tensor | None,
    ) -> None:
        if out_ptrs is None and self._plain:
            num_computed_tokens = None
        self._plain = out_ptrs is not None and num_computed_tokens is None
        super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
