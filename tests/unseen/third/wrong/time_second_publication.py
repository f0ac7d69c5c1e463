"""What was published for a captured step and not replayed is lost at the second publication.

It compares the publication's number with the next of the last that was applied.
"""

from __future__ import annotations

from bt_kernels.device_tables import CapturedWrites
from bt_kernels.layout import INT32_MAX
from bt_kernels.staging import CAPTURED_HEADER
from bt_kernels.variants.fused import Variant as Fused


class Writes(CapturedWrites):
    """Applies what was not replayed one publication too late."""

    def publish(self, tables, staged):
        view = self._buffer.wait()
        number = view[1]
        if self._published and number > view[2] + 1:
            self.launch(tables)
            self._buffer.wait()
        view[0] = sum(staged.pack(view, CAPTURED_HEADER))
        view[1] = (number + 1) % INT32_MAX
        self._published = True


class Variant(Fused):
    """Has its own captured writes."""

    def _make_captured_writes(self):
        plain = super()._make_captured_writes()
        return Writes(plain._buffer.tensor.numel() - CAPTURED_HEADER, self.place)
