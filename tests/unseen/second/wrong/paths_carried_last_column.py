"""Lets a launch carry a write to column 65,536, one more than 16 bits hold.

It shows when a decode step of `one_launch` appends the 65,537th block of a row: the column runs
over into the bits of the row, so column 0 of another row (or of this one) is written.
"""

from bt_kernels.one_launch import OneLaunch
from bt_kernels.staging import StagedWrites

COLUMN_BITS = 16


class Staged(StagedWrites):
    """Packs words for more columns."""

    def pack_words(self, bitmap, payload, ids_apart=None, /):
        further = []
        for group, intervals in enumerate(self._groups):
            for number, (row, (start, ids)) in enumerate(sorted(intervals.items())):
                if start == 1 << COLUMN_BITS and len(ids) == 1:
                    further.append((group, number, row, ids))
                    intervals[row] = (0, ids)
        packed = super().pack_words(bitmap, payload, ids_apart)
        words = memoryview(payload).cast("B").cast("q")
        for group, number, row, ids in further:
            self._groups[group][row] = (1 << COLUMN_BITS, ids)
            place = number + sum(map(len, self._groups[:group]))
            if packed is not None and place < len(words):
                words[place] |= 1 << COLUMN_BITS << 32
        return packed


class Variant(OneLaunch):
    """As one_launch, with other words."""

    native = False

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._stage_in(Staged(layout.widths, self.num_blocks))
