"""A captured step has no sliding window.

It is launched without `num_computed_tokens`, so columns before the window keep their blocks.
"""

from __future__ import annotations

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Launches captured steps by itself."""

    def _launch_captured(self, *arguments):
        *batch, _num_computed_tokens = arguments
        return super()._launch_captured(*batch, None)
