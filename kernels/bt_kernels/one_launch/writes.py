"""The writes of a step as marks and records in pinned memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bt_kernels.layout import INT32_MAX, TableLayout
from bt_kernels.one_launch.shapes import MARK_FIELDS, STEP_RECORD_FIELDS

if TYPE_CHECKING:
    from bt_kernels.staging import AnyStagedWrites


class StepWrites:
    """Marks, records and block ids of one step after another, in buffers that kernels read.

    Args:
        layout: layout of the tables.
        first: elements of a buffer before the marks.
    """

    def __init__(self, layout: TableLayout, first: int = 0) -> None:
        num_marks = layout.num_groups * layout.max_num_reqs
        self._first = first
        self.records = num_marks * MARK_FIELDS  # where records begin, relative to the first mark
        # A burst of writes grows a buffer.
        self.room = first + self.records + max(2 * num_marks, STEP_RECORD_FIELDS * 64)
        self.step = 0

    def size(self, staged: AnyStagedWrites) -> int:
        """Return the elements of a buffer that a step needs."""
        ids = self._first + self.records + STEP_RECORD_FIELDS * staged.num_records
        return ids + staged.num_ids

    def pack(self, staged: AnyStagedWrites, view: memoryview) -> int:
        """Fill a buffer; return the number of the step, and 0 where nothing is staged."""
        if not staged.num_records:
            return 0
        if self.step + 1 >= INT32_MAX:
            raise OverflowError("2,147,483,646 steps were prepared; make new tables")
        self.step += 1
        first = self._first
        staged.pack_step(view[first:] if first else view, self.records, self.step)
        return self.step
