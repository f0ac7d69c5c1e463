"""Accepts an `append_many` in which two appends to one row are together wider than the table.

It shows when a row occurs twice and each request alone would fit: both are compared with the number
of blocks before the call.
"""

from array import array

from bt_kernels.staging import StagedWrites
from bt_kernels.variants import fused


class Staged(StagedWrites):
    """Checks all requests before it changes anything, so that there is nothing to take back."""

    def _stage(self, requests, redirect):
        for row, contents, overwrite in requests:
            for (counts, width, _), ids in zip(self._tables, contents, strict=True):
                if (0 if overwrite else counts[row]) + len(ids) > width:
                    return False
        for row, contents, overwrite in requests:
            for (counts, _, intervals), ids in zip(self._tables, contents, strict=True):
                written = array("i", [0] * len(ids)) if redirect else ids
                start = 0 if overwrite else counts[row]
                counts[row] = start + len(ids)
                self.longest = max(self.longest, counts[row])
                if overwrite:
                    intervals[row] = (0, written)
                elif ids:
                    intervals.setdefault(row, (start, array("i")))[1].extend(written)
        return True


class Variant(fused.Variant):
    """As fused, with other staging."""

    native = False

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._stage_in(Staged(layout.widths, self.num_blocks))
