"""Gather and slots run on a side stream; only the next call makes the current stream wait for it.

The tables themselves are never read or written too early. But whoever reads the results between
two calls, on the current stream, may read them before they are written.
"""

import torch

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    capturable = frozenset()

    def __init__(self, layout, device, **options):
        self._side = None
        super().__init__(layout, device, **options)
        self._side = torch.cuda.Stream(self.device) if self._on_gpu else None

    def _join(self):
        if self._side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._side)

    def apply_staged_writes(self):
        self._join()
        super().apply_staged_writes()

    def restore(self, state):
        self._join()
        super().restore(state)

    def gather_and_compute_slot_mappings(self, *batch, **options):
        if self._side is None:
            return super().gather_and_compute_slot_mappings(*batch, **options)
        self._side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._side):
            return super().gather_and_compute_slot_mappings(*batch, **options)
