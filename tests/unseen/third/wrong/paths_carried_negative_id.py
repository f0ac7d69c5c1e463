"""A negative block id that a launch carries borrows from its column.

The sign is not cut off before it is added to the word.
"""

from __future__ import annotations

from bt_kernels.staging import StagedWrites
from bt_kernels.variants.one_launch import Variant as OneLaunch


class Staged(StagedWrites):
    """Packs words in its own way."""

    def pack_words(self, bitmap, payload, ids_apart=None, /):
        packed = super().pack_words(bitmap, payload, ids_apart)
        words = memoryview(payload).cast("B").cast("q")
        written = [
            (row, start, ids)
            for intervals in self._groups
            for row, (start, ids) in sorted(intervals.items())
        ]
        if packed is not None and len(written) <= len(words):
            for place, (row, start, ids) in enumerate(written):
                if len(ids) == 1:
                    words[place] = (row << 48) + (start << 32) + ids[0]
        return packed


class Variant(OneLaunch):
    """Stages in Python."""

    native = False

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._stage_in(Staged(layout.widths, self.num_blocks))
