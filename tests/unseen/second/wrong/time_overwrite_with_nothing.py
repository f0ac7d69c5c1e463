"""Keeps what was staged for a row when it is then overwritten with an empty list.

It shows when a row gets ids and is overwritten with none in the same step, such as a request that
is aborted at once: the dropped ids reach the table and count.
"""

from bt_kernels.staging import StagedWrites
from bt_kernels.variants import fused


class Staged(StagedWrites):
    """Handles empty lists first, since most groups of most requests have one."""

    def _stage(self, requests, redirect):
        if not self._fits(requests):
            return False
        for row, contents, overwrite in requests:
            for (counts, _, intervals), ids in zip(self._tables, contents, strict=True):
                written = type(ids)("i", [0] * len(ids)) if redirect else ids
                start = 0 if overwrite else counts[row]
                counts[row] = start + len(ids)
                if not ids:
                    if overwrite:
                        intervals.setdefault(row, (0, ids))
                elif overwrite or row not in intervals:
                    intervals[row] = (start, written)
                else:
                    intervals[row][1].extend(written)
        return True

    def _fits(self, requests):
        ends = {}
        for row, contents, overwrite in requests:
            for group, ids in enumerate(contents):
                counts, width, _ = self._tables[group]
                before = 0 if overwrite else ends.get((group, row), counts[row])
                ends[group, row] = end = before + len(ids)
                if end > width:
                    return False
                self.longest = max(self.longest, end)
        return True


class Variant(fused.Variant):
    """As fused, with other staging."""

    native = False

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._stage_in(Staged(layout.widths, self.num_blocks))
