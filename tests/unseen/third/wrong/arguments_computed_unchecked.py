"""`num_computed_tokens` of the wrong dtype or length is accepted by tables without a window.

They do not need it, and skip its check with it.
"""

from __future__ import annotations

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Skips a check."""

    def _options(self, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        if not self._has_window:
            num_computed_tokens = None
        return super()._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
