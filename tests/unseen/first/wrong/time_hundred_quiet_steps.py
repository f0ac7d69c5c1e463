"""Fault: after 100 applies with nothing staged, tables count as idle and the next apply is
skipped.

Seen: the first writes after 100 applies without any stay staged; the apply after them makes
both.
"""

from __future__ import annotations

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Saves the look at the staging area while an engine idles."""

    _quiet = 0

    def apply_staged_writes(self) -> None:
        self._quiet = 0 if self._staged and self._quiet < 100 else self._quiet + 1
        if self._staged and self._quiet > 100:
            self._quiet = 0
            return
        super().apply_staged_writes()
