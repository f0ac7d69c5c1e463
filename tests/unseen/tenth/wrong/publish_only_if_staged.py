"""As fused_gather_slots, but `publish` of a captured step returns at once if nothing is staged.

In most decode steps no request gets a new block. There is nothing to move to the buffer then: what
it holds was published before, and writing that again changes nothing. So the wait for the buffer's
reader and the packing are skipped.

Wrong: `publish` also zeroes the rows behind the step that a larger batch left dirty, and counts
    those that the replay fills; this is skipped, too.
Shows: a captured step of few rows, a step of a larger batch, then `publish` with nothing staged.
"""

from __future__ import annotations

from bt_kernels.variants.fused_gather_slots import Variant as Base


class Variant(Base):
    """Publishes only what there is."""

    def _publish_for_replay(
        self, idx_mapping, query_start_loc, positions, num_reqs_padded, num_computed_tokens
    ):
        writes = self._captured_writes
        # After other writes were applied, the buffer must be emptied.
        if not self._staged and writes is not None and writes.is_pending:
            self.refuse_capture("publish")
            return
        super()._publish_for_replay(
            idx_mapping, query_start_loc, positions, num_reqs_padded, num_computed_tokens
        )
