"""A captured step of `one_launch`, which the caller replays."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import torch

from bt_kernels.device_tables import CapturedWrites
from bt_kernels.one_launch.fixed import FixedLaunch
from bt_kernels.one_launch.shapes import STEP_RECORD_FIELDS
from bt_kernels.one_launch.writes import StepWrites
from bt_kernels.staging import CapturedBuffer, StagedWrites

if TYPE_CHECKING:
    from bt_kernels.one_launch.carrying import Batch
    from bt_kernels.one_launch.fixed import Options
    from bt_kernels.one_launch.tables import OneLaunch


class CapturedLaunch(CapturedWrites):
    """The buffer from which replays run a whole step in one launch.

    Args:
        tables: the tables of the step.
        launcher: see `FixedLaunch`.
    """

    def __init__(self, tables: OneLaunch, launcher: ModuleType | None) -> None:
        on_gpu = tables.device.type == "cuda"
        self._applied = torch.zeros(1, dtype=torch.int32, pin_memory=on_gpu)
        self._fixed = FixedLaunch(tables, launcher, self._applied)
        self._writes = StepWrites(tables.layout, self._fixed.body)
        # It cannot grow: room for a record and a block id per row of each group.
        num_rows = tables.num_blocks.size
        size = self._fixed.body + self._writes.records + (STEP_RECORD_FIELDS + 1) * num_rows
        self._buffer = CapturedBuffer(size, tables.place)
        self._pending = (0, 0)  # step and number of records that may not have been replayed yet

    @property
    def is_pending(self) -> bool:
        return self._pending[0] != 0

    def launch_step(self, tables: OneLaunch, has_options: bool) -> None:
        """Launches whatever step is published when the launch runs."""
        self._fixed.launch(tables, self._buffer.tensor, has_options=has_options)
        self._buffer.note_reader()

    def has_room(self, staged: StagedWrites) -> bool:
        return self._writes.size(staged) <= self._buffer.tensor.numel()

    def publish_step(
        self,
        tables: OneLaunch,
        staged: StagedWrites,
        batch: Batch,
        options: Options,
    ) -> None:
        """Fills the buffer for the next replay, once the last one has read it.

        Writes that were published before and never replayed are applied first.
        """
        self.settle(tables)
        view = self._buffer.wait()
        num_records = staged.num_records
        step = self._writes.pack(staged, view)
        longest = tables.widest  # how many are padding is not known
        self._fixed.write(view, tables, step, num_records, batch, longest, options)
        self._pending = (step, num_records)

    def settle(self, tables: OneLaunch) -> None:
        step, num_records = self._pending
        if not step:
            return
        view = self._buffer.wait()
        if self._applied.item() != step:
            tables.refuse_capture("apply_staged_writes")
            self._fixed.write_records_only(view, step, num_records)
            self.launch_step(tables, False)
        self._pending = (0, 0)

    def discard(self) -> None:
        self._fixed.write_records_only(self._buffer.wait(), 0, 0)
        self._pending = (0, 0)
