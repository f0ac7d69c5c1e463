"""As fused, but replays apply one record per program, without a loop (2 launches a step).

Wrong: the launch has a program for each row of the tables. A row has one record in each group, so
there may be more records than that, and those of the last groups are not applied.

Shows: several groups, and more staged intervals than max_num_reqs, in a step that is captured, or
is published and not replayed before the next apply.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import CAPTURED_HEADER, RECORD_FIELDS, _write_record
from bt_kernels.device_tables import CapturedWrites
from bt_kernels.variants.fused import Variant as Base

BLOCK = 128


@triton.jit
def apply_published_kernel(descriptors, staging, BLOCK: tl.constexpr):
    """Writes one published record, if there are so many; grid `(programs,)`."""
    record = tl.program_id(0)
    if record == 0:
        tl.store(staging + 2, tl.load(staging + 1))
    if record < tl.load(staging):
        first = CAPTURED_HEADER + record * RECORD_FIELDS
        _write_record(descriptors, staging, first, BLOCK)


class ProgramPerRecord(CapturedWrites):
    """Published writes that are applied side by side."""

    def launch(self, tables):
        # A row has one interval at most, however often it was appended to.
        grid = (tables.layout.max_num_reqs, 1, 1)
        buffer = self._buffer.tensor
        tables.launch(apply_published_kernel, grid, (tables.descriptors, buffer), (BLOCK,), ())
        self._buffer.note_reader()


class Variant(Base):
    """Replaces how published writes are applied."""

    def _make_captured_writes(self):
        room = (RECORD_FIELDS.value + 1) * self.num_blocks.size
        return ProgramPerRecord(room, self.place)
