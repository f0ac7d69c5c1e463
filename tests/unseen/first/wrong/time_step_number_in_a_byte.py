"""Fault: the number of the step is kept in a byte, and 0 means that nothing was staged: each 256th
apply with writes is lost.

Seen: what is staged for the 256th non-empty apply never reaches the source tables.
"""

from __future__ import annotations

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Steps are numbered, so that marks of older ones need not be cleared."""

    _number = 0

    def _launch_apply(self, records_per_group: list[int]) -> None:
        self._number = (self._number + 1) % 256
        num_records = sum(records_per_group) if self._number else 0
        if num_records:
            super()._launch_apply(records_per_group)
