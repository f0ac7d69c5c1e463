"""Fault: the launch that applies writes has at most 256 programs, one for each record.

Seen: with more than 256 written rows (all groups together) in a step, those after the 256th
keep their old ids and numbers of blocks.
"""

from __future__ import annotations

from bt_kernels import launches
from bt_kernels.fusions import FusedApply

MAX_PROGRAMS = 256


class Variant(FusedApply):
    """As fused_apply, with a grid of bounded size."""

    def _launch_apply(self, records_per_group: list[int]) -> None:
        num_programs = min(sum(records_per_group), MAX_PROGRAMS)
        launches.apply_writes(self, self._ring.current, 0, num_programs)
