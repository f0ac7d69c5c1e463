"""The window is left out until a request passes the longest reach, though groups have shorter ones.

Shows: two groups with reaches 4 and 32, `num_computed_tokens` between them for all rows: nothing of
the first group is zeroed.
"""

from __future__ import annotations

from bt_kernels.variants.fused_gather_slots import Variant as Base


class Variant(Base):
    """Takes the plain kernels while all requests are shorter than the window."""

    def _check_options(self, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        window = super()._check_options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        if window is None or self.place.is_capturing():
            return window
        longest = int(window[: self.layout.max_num_reqs].max())
        return None if longest <= max(self.layout.reaches) else window
