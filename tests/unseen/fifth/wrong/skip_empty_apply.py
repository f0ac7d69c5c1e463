"""An apply without block ids is skipped, so rows overwritten with no ids keep their old length.

Shows: `append_block_ids(row, [[]], overwrite=True)` for every group (a request was preempted and its
row freed), nothing else staged, then apply and a gather of that row: its old blocks are gathered.
"""

from __future__ import annotations

from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Launches the apply only where there are block ids to copy."""

    def apply_staged_writes(self) -> None:
        if self._captured_writes is None and self._staged.num_ids == 0:
            # Appends of decodes within a block: no ids, no launch.
            self._staged.clear()
            return
        super().apply_staged_writes()
