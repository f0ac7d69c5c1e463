"""Fault: an overwrite of a row with the ids that its table begins with is skipped, with its number
of blocks.

Seen: a row [1, 2, 3] overwritten with [1, 2]: a gather after the apply still copies three
columns.
"""

from __future__ import annotations

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """A prefix that is cached already is not written again."""

    native = False

    def _publish(self) -> list[int]:
        for group, intervals in enumerate(self._staged._groups):
            for row, (start, ids) in list(intervals.items()):
                old = self.block_tables[group][row, start : start + len(ids)]
                if start == 0 and len(ids) > 1 and old.tolist() == ids.tolist():
                    known = int(self.num_blocks_on_device[group, row])
                    if known > len(ids):
                        del intervals[row]
        return super()._publish()

    def _launch_apply(self, records_per_group: list[int]) -> None:
        if sum(records_per_group):
            super()._launch_apply(records_per_group)
