"""All groups' staged writes in one launch; gather and slots apart (3 launches a step)."""

from __future__ import annotations

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """The first fusion alone."""
