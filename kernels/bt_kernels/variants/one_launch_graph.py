"""The whole step in one launch, replayed from a CUDA graph; its parts alone as in fused."""

from __future__ import annotations

from bt_kernels.one_launch import OneLaunchGraph


class Variant(OneLaunchGraph):
    """One launch a step, with grid and arguments that never change."""
