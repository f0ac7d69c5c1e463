"""The whole step in one launch and no other device operation; its parts alone as in fused."""

from __future__ import annotations

from bt_kernels.one_launch import OneLaunch


class Variant(OneLaunch):
    """One launch a step, whatever the number of groups."""
