"""Publishing a captured step with nothing staged leaves the last publication in the buffer.

Shows when a captured step has written a row, a plain apply has then overwritten the row, and the
captured step is made again with nothing staged: it writes the old ids and the old count again.
"""

from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Decode steps without new blocks publish without a wait for the buffer."""

    def _publish_for_replay(
        self, idx_mapping, query_start_loc, positions, num_reqs_padded, num_computed_tokens
    ):
        if self._staged or not self._has_published():
            super()._publish_for_replay(
                idx_mapping, query_start_loc, positions, num_reqs_padded, num_computed_tokens
            )
            return
        self.refuse_capture("publish")
        # What is in the buffer was written before: to write it again changes nothing.
        self._zero_dirty_rows(num_reqs_padded)

    def _has_published(self):
        return self._captured_writes._buffer.view[1] > 0
