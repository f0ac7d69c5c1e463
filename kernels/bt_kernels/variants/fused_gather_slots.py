"""Gather and slots in one launch, slots from the source table (G + 1 launches a step)."""

from __future__ import annotations

from bt_kernels.fusions import FusedGatherSlots


class Variant(FusedGatherSlots):
    """The second fusion alone."""
