"""Forgets what a captured step published if it is published again before a replay.

It shows at the second `publish` without a replay in between: the writes of the first must be
applied then, and never are.
"""

from bt_kernels.device_tables.captured import CapturedWrites
from bt_kernels.device_tables.state import RECORD_ROOM
from bt_kernels.layout import INT32_MAX
from bt_kernels.staging import CAPTURED_HEADER
from bt_kernels.variants import fused


class OneWrites(CapturedWrites):
    """Takes every publication for replayed."""

    def publish(self, tables, staged):
        view = self._buffer.wait()  # so the last replay has read it
        view[0] = sum(staged.pack(view, CAPTURED_HEADER))
        view[1] = (view[1] + 1) % INT32_MAX
        self._published = True


class Variant(fused.Variant):
    """As fused, with a shorter publish."""

    def _make_captured_writes(self):
        return OneWrites(self.num_blocks.size * RECORD_ROOM, self.place)
