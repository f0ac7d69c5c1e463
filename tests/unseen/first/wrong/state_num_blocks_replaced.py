"""Fault: restore makes a new array for num_blocks, while staging goes on with the old one.

Seen: restore a state of fresh tables after some appends: the next append begins behind blocks
that the row does not have any more, and num_blocks does not change.
"""

from __future__ import annotations

from bt_kernels.fusions import FusedApply
from bt_kernels.interface import TableState


class Variant(FusedApply):
    """Leaves arrays that others may hold alone."""

    def restore(self, state: TableState) -> None:
        before = self.num_blocks.copy()
        super().restore(state)
        numbers = self.num_blocks.copy()
        self.num_blocks[:] = before
        self.num_blocks = numbers
