"""A step in one launch: staged writes, gather and slots of all groups, and no other operation."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bt_kernels import arguments, launches, one_launch_code
from bt_kernels.fusions import FusedApply, FusedGatherSlots
from bt_kernels.interface import TableState
from bt_kernels.layout import INT32_MAX, PAD_SLOT_ID, TableLayout
from bt_kernels.one_launch_code import one_launch_kernel, one_launch_options_kernel
from bt_kernels.staging import HostRing, StagedWrites

MARK_FIELDS: int = one_launch_code.MARK_FIELDS.value
STEP_RECORD_FIELDS: int = one_launch_code.STEP_RECORD_FIELDS.value


@dataclass(frozen=True)
class Shape:
    """How the requests of a step are cut into programs.

    Args:
        requests: that a program gathers and maps.
        columns: of a row that it copies at a time.
        tokens: that it maps at a time.
    """

    requests: int
    columns: int
    tokens: int

    def constants(self) -> tuple[int, ...]:
        """Values of the kernels' last `tl.constexpr` parameters, in their order."""
        return (PAD_SLOT_ID, self.requests, self.columns, self.tokens, BLOCK)


# One request a program has the shortest way from launch to store, as long as there are few. Where
# there are thousands, starting programs is what takes the time (0.65 us a thousand), and requests
# share one. A long prompt, or a long row, has more programs of more columns and tokens. Found by
# measurement on an H200.
FEW = Shape(requests=1, columns=256, tokens=32)
MANY = Shape(requests=8, columns=32, tokens=16)
LONG = Shape(requests=2, columns=512, tokens=256)
MANY_ROWS = 1024  # of all groups
LONG_TOKENS = 256  # tokens per request, on average
LONG_COLUMNS = 2048
CHUNK = 1024  # tokens or columns for which a tile of `LONG` has a program of its own
MAX_CHUNKS = 16
BLOCK = 1024  # slots that are padded, or ids that are written, at a time


class StepWrites:
    """The host buffers of `one_launch_kernel`, in turn: marks, records and block ids.

    Args:
        layout: of the tables.
        device: that reads.
        in_flight: see `HostRing`.
    """

    def __init__(self, layout: TableLayout, device: torch.device, in_flight: int | None) -> None:
        self._max_num_reqs = layout.max_num_reqs
        self._num_marks = layout.num_groups * layout.max_num_reqs
        self.records = self._num_marks * MARK_FIELDS  # where they begin
        # Room for a record per row, or fewer and their ids; a burst of longer writes grows it.
        size = self.records + self._num_marks * STEP_RECORD_FIELDS
        self._ring = HostRing(size, device, in_flight=in_flight)
        self.step = 0
        self.longest = 0  # blocks of a row, so far

    @property
    def current(self) -> torch.Tensor:
        """The buffer that the launch is to read."""
        return self._ring.current

    def publish(self, staged: StagedWrites) -> int:
        """Fills the next buffer; returns the number of records."""
        self.step += 1
        if self.step == INT32_MAX:
            raise OverflowError("2,147,483,647 steps were prepared; make new tables")
        num_records = sum(map(len, staged.groups))
        first_id = self.records + STEP_RECORD_FIELDS * num_records
        records: list[int] = []
        contents = array("i")
        for group, intervals in enumerate(staged.groups):
            for row, (start, ids) in intervals.items():
                length = len(ids)
                self.longest = max(self.longest, start + length)
                if length == 1:
                    value = ids[0]
                else:
                    value = first_id + len(contents)
                    contents.extend(ids)
                records.extend((group, row, start, start + length, value, self.step, 0, 0))
        packed = array("i", records)
        view = self._ring.advance(first_id + len(contents))
        view[self.records : first_id] = packed
        view[first_id : first_id + len(contents)] = contents
        table = np.frombuffer(packed, dtype=np.int32).reshape(num_records, STEP_RECORD_FIELDS)
        marks = np.frombuffer(view, dtype=np.int32, count=self.records)
        keys = table[:, 0] * self._max_num_reqs + table[:, 1]
        # A mark is part of its record: start, end, value, step.
        marks.reshape(self._num_marks, MARK_FIELDS)[keys] = table[:, 2 : 2 + MARK_FIELDS]
        return num_records


class OneLaunch(FusedApply, FusedGatherSlots):
    """A whole step in one launch; its parts, when they are called alone, as in `fused`.

    Arguments of the constructor are those of `DeviceState`.
    """

    def __init__(
        self,
        layout: TableLayout,
        device: torch.device | str,
        *,
        steps_in_flight: int | None = None,
        validate: bool = False,
    ) -> None:
        super().__init__(layout, device, steps_in_flight=steps_in_flight, validate=validate)
        self._step_writes = StepWrites(layout, self.device, steps_in_flight)

    def prepare_step(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        *,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
        slots_out: torch.Tensor | None = None,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        self._refuse_capture("prepare_step")
        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping)
        arguments.check_rows(self.layout, num_reqs, num_reqs_padded)
        window, ptrs = self._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        slots = self._check_slots(
            num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out
        )
        if self._captured_writes is not None:
            self._captured_writes.settle(self)
        num_rows, dirty = self._rows_to_gather(num_reqs, num_reqs_padded, out)
        batch = (idx_mapping, query_start_loc, positions)
        if self._staged:
            self._launch_step(*batch, num_rows, window, ptrs, slots_out)
            self._staged.clear()
        else:
            # Reads no host memory, which is what takes the time of the other launch.
            launches.gather_slots(self, *batch, num_rows, window, ptrs, slots_out)
        self.num_dirty_rows = dirty
        return self._views(num_reqs_padded, out), slots

    def restore(self, state: TableState) -> None:
        super().restore(state)
        self._step_writes.longest = int(self.num_blocks.max())

    def _launch_step(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out_ptrs: torch.Tensor | None,
        out: torch.Tensor | None,
    ) -> None:
        writes, num_groups = self._step_writes, self.layout.num_groups
        num_records = writes.publish(self._staged)
        num_reqs = idx_mapping.shape[0]
        shape, num_chunks = self._cut(num_reqs, num_rows, positions.shape[0])
        num_tiles = -(-num_rows // shape.requests)
        size = self.layout.max_num_batched_tokens if out is None else out.shape[1]
        num_pads = min(MAX_CHUNKS, -(-size // BLOCK)) or 1
        plain = (
            self.descriptors,
            writes.current,
            idx_mapping,
            query_start_loc,
            positions,
            writes.records,
            num_records,
            num_reqs,
            num_rows,
            writes.step,
            self.layout.max_num_reqs,
            num_tiles,
            num_chunks,
            num_pads,
        )
        grid = (num_records + num_groups * (num_tiles * num_chunks + num_pads), 1, 1)
        if num_computed_tokens is None and out_ptrs is None and out is None and not self.sharded:
            self.launch(one_launch_kernel, grid, plain, shape.constants(), (idx_mapping,))
            return
        stride, length = (None, None) if out is None else (out.stride(0), out.shape[1])
        self.launch(
            one_launch_options_kernel,
            grid,
            (*plain, num_computed_tokens, out_ptrs, out, stride, length),
            (self.sharded, *shape.constants()),
            (idx_mapping, num_computed_tokens, out_ptrs, out),
        )

    def _cut(self, num_reqs: int, num_rows: int, num_tokens: int) -> tuple[Shape, int]:
        """The shape of a step's programs, and how many share a tile."""
        longest = self._step_writes.longest
        if num_rows > num_reqs:  # rows that are zeroed whole
            longest = max(self.layout.widths)
        if num_tokens > LONG_TOKENS * max(num_reqs, 1) or longest > LONG_COLUMNS:
            spare = max(num_tokens - num_reqs, longest)
            return LONG, min(MAX_CHUNKS, max(1, spare // CHUNK))
        if num_rows * self.layout.num_groups > MANY_ROWS:
            return MANY, 1
        return FEW, 1
