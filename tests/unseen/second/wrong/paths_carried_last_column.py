"""Lets a launch carry a write to column 32,768, one more than 15 bits hold.

It shows when a decode step of `one_launch` appends the 32,769th block of a row: the column runs
over into the bits of the row, so column 0 of another row (or of this one) is written.
"""

from array import array

from bt_kernels.one_launch import OneLaunch
from bt_kernels.staging import NO_WRITE, TYPE_BIT, StagedWrites

COLUMN_BITS = 15


class Staged(StagedWrites):
    """Packs words for more columns."""

    def pack_words(self, words, slots, /):
        packed = array("q")
        for intervals in self._groups:
            if len(intervals) > slots:
                return -1
            for row, (start, ids) in intervals.items():
                if len(ids) != 1 or start > 1 << COLUMN_BITS:
                    return -1
                block_id = ids[0] & 0xFFFFFFFF
                packed.append(TYPE_BIT | row << 47 | start << 32 | block_id)
            packed.extend([NO_WRITE] * (slots - len(intervals)))
        words[: len(packed)] = packed
        return 0


class Variant(OneLaunch):
    """As one_launch, with other words."""

    native = False

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._staged = Staged(layout.widths, self.num_blocks)
