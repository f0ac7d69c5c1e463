"""As fused, but a captured step's `publish` returns early where nothing is staged.

What it does: most decode steps write no block ids, so if the last publication has been replayed
and nothing is staged, `publish` only sets the number of records to 0.

Wrong: it returns before rows are zeroed that a larger batch left dirty behind the replay's.

Shows: `capture_step` for few rows, a gather of more, then `publish` with nothing staged.
"""

from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Publishes only what there is."""

    def _publish_for_replay(self, idx_mapping, query_start_loc, positions, rows, computed):
        self.refuse_capture("publish")
        writes = self._captured_writes
        if not self._staged and not writes.is_awaited:
            writes._buffer.wait()[0] = 0
            return
        super()._publish_for_replay(idx_mapping, query_start_loc, positions, rows, computed)
