"""Fault: the addresses of out are kept as long as the caller passes the same list.

Seen: replace a tensor in the list between two gathers: the second one writes into the tensor of
the first.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.layout import TableLayout


class Variant(DeviceBlockTables):
    """Addresses of the same tables are copied to the device once."""

    def __init__(self, layout: TableLayout, device: torch.device | str, **options: object) -> None:
        super().__init__(layout, device, **options)
        self._known: tuple[object, torch.Tensor | None, object] = (None, None, None)

    def _options(
        self,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None,
        out_ptrs: torch.Tensor | None,
        num_computed_tokens: torch.Tensor | None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        given = out_ptrs
        computed, out_ptrs = super()._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        if out is None or given is not None:
            return computed, out_ptrs
        if self._known[0] is not out:
            # The tensors are kept, too, so that the addresses stay valid.
            self._known = (out, out_ptrs, tuple(out))
        return computed, self._known[1]
