"""Fault: a gather without num_computed_tokens uses those of the last call that had them.

Seen: with a window, a call with num_computed_tokens and then one without: columns before the
window are 0 although every column is to be copied.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """Keeps the window of a batch between calls."""

    _computed: torch.Tensor | None = None

    def _launch_gather(
        self,
        idx_mapping: torch.Tensor,
        num_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out_ptrs: torch.Tensor | None,
    ) -> None:
        if num_computed_tokens is None and out_ptrs is None:
            num_computed_tokens = self._computed
        else:
            self._computed = num_computed_tokens
        super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)

    def get_dummy_block_tables(self, num_reqs: int) -> tuple[torch.Tensor, ...]:
        self._computed = None
        return super().get_dummy_block_tables(num_reqs)
