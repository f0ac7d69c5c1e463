"""A gather into a caller's tables sets the number of dirty rows.

The next, smaller gather leaves rows of the input tables unzeroed.
"""

from __future__ import annotations

from bt_kernels.variants.fused_apply import Variant as FusedApply


class Variant(FusedApply):
    """Counts the rows of each gather."""

    def _rows_to_gather(self, num_reqs, num_reqs_padded, out):
        num_rows, _ = super()._rows_to_gather(num_reqs, num_reqs_padded, out)
        return num_rows, num_reqs
