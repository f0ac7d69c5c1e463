"""Both fusions: staged writes in one launch, gather and slots in another (2 launches a step)."""

from __future__ import annotations

from bt_kernels.fusions import FusedApply, FusedGatherSlots


class Variant(FusedApply, FusedGatherSlots):
    """Two launches whatever the number of groups."""
