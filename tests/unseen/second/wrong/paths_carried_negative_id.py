"""Packs a block id below 0 into a launch's words with its sign.

It shows when a step of `one_launch` whose writes are parameters writes a negative id: the sign
covers row and column, so the word says that nothing is written.
"""

from array import array

from bt_kernels.one_launch import OneLaunch
from bt_kernels.staging import LAST_COLUMN, NO_WRITE, TYPE_BIT, StagedWrites


class Staged(StagedWrites):
    """Packs words without masking ids, which are int32 already."""

    def pack_words(self, words, slots, /):
        packed = array("q")
        for intervals in self._groups:
            if len(intervals) > slots:
                return -1
            for row, (start, ids) in intervals.items():
                if len(ids) != 1 or start > LAST_COLUMN:
                    return -1
                packed.append(TYPE_BIT | row << 47 | start << 32 | ids[0])
            packed.extend([NO_WRITE] * (slots - len(intervals)))
        words[: len(packed)] = packed
        return 0


class Variant(OneLaunch):
    """As one_launch, with other words."""

    native = False

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._staged = Staged(layout.widths, self.num_blocks)
