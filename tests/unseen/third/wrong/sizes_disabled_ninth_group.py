"""Which groups have no slots is kept in one byte.

So a disabled group from the ninth on gets slots.
"""

from __future__ import annotations

from bt_kernels.device_code import CAPACITY
from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Replaces the capacities in the descriptors."""

    def _describe_groups(self):
        layout = self.layout
        disabled = sum(1 << g for g, on in enumerate(layout.slot_mapping_enabled) if not on) & 0xFF
        descriptors = super()._describe_groups()
        for group, (width, tokens) in enumerate(
            zip(layout.widths, layout.tokens_per_block, strict=True)
        ):
            capacity = 0 if disabled >> group & 1 else width * tokens
            descriptors[group, CAPACITY.value] = capacity
        return descriptors
