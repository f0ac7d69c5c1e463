"""A negative block id that a launch carries borrows from its column.

The sign is not cut off before it is added to the word.
"""

from __future__ import annotations

from bt_kernels.staging import LAST_COLUMN, NO_WRITE, TYPE_BIT, StagedWrites
from bt_kernels.variants.one_launch import Variant as OneLaunch


class Staged(StagedWrites):
    """Packs words in its own way."""

    def pack_words(self, words, slots, /):
        packed = []
        for intervals in self._groups:
            if len(intervals) > slots:
                return -1
            for row, (start, ids) in intervals.items():
                if len(ids) != 1 or start > LAST_COLUMN:
                    return -1
                packed.append(TYPE_BIT + (row << 47) + (start << 32) + ids[0])
            packed += [NO_WRITE] * (slots - len(intervals))
        for place, word in enumerate(packed):
            words[place] = word
        return 0


class Variant(OneLaunch):
    """Stages in Python."""

    native = False

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._staged = Staged(layout.widths, self.num_blocks)
