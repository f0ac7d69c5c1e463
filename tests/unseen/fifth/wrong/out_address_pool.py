"""Addresses of callers' outputs are pooled on the device; whose place is taken is not forgotten.

Shows: gather into 33 different `out` without `out_ptrs` (one for each captured batch size, say), all
alive, then into the first again: its place in the pool has the addresses of the 33rd by now.
"""

from __future__ import annotations

import torch

from bt_kernels.variants.fused_gather_slots import Variant as Base

POOL = 32


class Variant(Base):
    """The copy of addresses to the device is made once for each `out`."""

    def __init__(self, layout, device, **options) -> None:
        super().__init__(layout, device, **options)
        shape = (POOL, layout.num_groups)
        self._pool = torch.zeros(shape, dtype=torch.int64, device=self.device)
        self._places: dict[tuple[int, ...], int] = {}
        self._next = 0

    def _options(self, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        if out is None or out_ptrs is not None:
            return super()._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        window = self._check_options(num_reqs_padded, out, None, num_computed_tokens)
        addresses = tuple([table.data_ptr() for table in out])
        place = self._places.get(addresses)
        if place is None:
            place, self._next = self._next, (self._next + 1) % POOL
            self._pool[place] = torch.tensor(addresses)
            self._places[addresses] = place
        return window, self._pool[place]
