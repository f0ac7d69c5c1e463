"""Fault: apply_staged_writes makes what was published and not replayed only if something else is
staged.

Seen: capture_step, stage, publish and then apply without a replay: the ids are missing in the
source tables.
"""

from __future__ import annotations

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Nothing staged, nothing to do."""

    def apply_staged_writes(self) -> None:
        if self._staged:
            super().apply_staged_writes()
