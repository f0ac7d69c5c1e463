"""Writes too many for the captured buffer are applied before what was published and not replayed.

Shows when a step is published and never replayed, and the next publish has more writes than the
buffer has room for, to the same row: the older ids are written over the newer ones.
"""

from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Launches an overflow at once, since `publish` of the buffer settles what is left itself."""

    def _publish_for_replay(
        self, _idx_mapping, _query_start_loc, _positions, num_reqs_padded, _num_computed_tokens
    ):
        self.refuse_capture("publish")
        writes = self._captured_writes
        self._zero_dirty_rows(num_reqs_padded)
        if not writes.has_room(self._staged):
            self._launch_apply(self._publish())
            self._ring.note_reader()
            self._staged.clear()
        writes.publish(self, self._staged)
        self._staged.clear()
