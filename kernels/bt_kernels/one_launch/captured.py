"""A captured step of `one_launch`, which the caller replays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bt_kernels.device_tables import CapturedWrites
from bt_kernels.device_tables.captured import places_of
from bt_kernels.one_launch.fixed import FixedLaunch
from bt_kernels.one_launch.shapes import STEP_RECORD_FIELDS
from bt_kernels.one_launch.writes import StepWrites
from bt_kernels.staging import CapturedBuffer, ToldNumber

if TYPE_CHECKING:
    from bt_kernels.device_tables.captured import Replayed
    from bt_kernels.launches import Tables
    from bt_kernels.native import Launcher
    from bt_kernels.one_launch.steps import Batch, Options, Steps
    from bt_kernels.staging import AnyStagedWrites


class CapturedLaunch(CapturedWrites):
    """The buffer that a replay reads to run a whole step in one launch.

    Args:
        tables: the tables of the step.
        launcher: see `FixedLaunch`.
    """

    def __init__(self, tables: Steps, launcher: Launcher | None) -> None:
        self._applied = ToldNumber(tables.place)
        self._fixed = FixedLaunch(tables, launcher, self._applied.tensor)
        self._writes = StepWrites(tables.layout, self._fixed.body)
        # It cannot grow: room for a record and a block id per row of each group.
        num_rows = tables.num_blocks.size
        size = self._fixed.body + self._writes.records + (STEP_RECORD_FIELDS + 1) * num_rows
        self._buffer = CapturedBuffer(size, tables.place)
        self._pending = (0, 0)  # step and number of records that may not have been replayed yet
        # The number that a replay of the last publication will store.
        self._awaited: int | None = None
        self._header: tuple[int, ...] = (0, 0, 0, 0)  # the last header with a batch
        self.rows = self.uncounted = 0

    @property
    def is_pending(self) -> bool:
        return self._pending[0] != 0 or self.uncounted != 0

    def launch_step(self, tables: Tables, has_options: bool) -> None:
        """Launch the kernel of whatever step is published when it runs."""
        self._fixed.launch(tables, self._buffer.tensor, has_options=has_options)
        self._buffer.note_reader()

    def has_room(self, staged: AnyStagedWrites) -> bool:
        return self._writes.size(staged) <= self._buffer.tensor.numel()

    def publish_step(
        self,
        tables: Steps,
        staged: AnyStagedWrites,
        batch: Batch,
        options: Options,
    ) -> None:
        """Fill the buffer for the next replay, once the last one has read it.

        Writes that were published before and never replayed are applied first.
        """
        self.settle(tables)
        view = self._buffer.wait()
        num_records = staged.num_records
        step = self._writes.pack(staged, view)
        longest = tables.widest  # the number of padding rows is unknown
        self._header = self._fixed.write(view, tables, step, num_records, batch, longest, options)
        self._buffer.upload()
        self._applied.write(-1)  # shows the replay of a step without writes, too: its number is 0
        self._pending, self._awaited = (step, num_records), step

    def published_rows(self) -> list[tuple[int, int]]:
        first = self._fixed.body + self._writes.records
        _, num_records = self._pending
        return places_of(self._buffer.view, first, STEP_RECORD_FIELDS, num_records)

    @property
    def is_awaited(self) -> bool:
        return self._awaited is not None and self._applied.read() != self._awaited

    def settle(self, tables: Replayed) -> None:
        step, num_records = self._pending
        if step:
            view = self._buffer.wait()
            if self._applied.read() != step:
                tables.refuse_capture("apply_staged_writes")
                self._fixed.write_records_only(view, step, num_records)
                self._buffer.upload()
                self.launch_step(tables, False)
                self._forget_writes()
        self._pending, self._awaited = (0, 0), None

    def discard(self) -> None:
        self._forget_writes()
        self._pending, self._awaited = (0, 0), None
        self.rows = self.uncounted = 0

    def _forget_writes(self) -> None:
        """Leave a replay that follows all the same its step, but without writes."""
        *batch, last = self._header
        self._fixed.write_header(self._buffer.wait(), (*batch, last & 1))
        self._buffer.upload()
