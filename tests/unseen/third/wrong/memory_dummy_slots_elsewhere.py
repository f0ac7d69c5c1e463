"""The dummy slots are a view of a constant tensor.

They are PAD, as are the persistent slots, but have not the persistent address.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Keeps a tensor of PAD."""

    _pads = None

    def get_dummy_slot_mappings(self, num_tokens):
        super().get_dummy_slot_mappings(num_tokens)
        if self._pads is None:
            self._pads = torch.full_like(self.slot_mappings, PAD_SLOT_ID)
        return self._pads[:, :num_tokens]
