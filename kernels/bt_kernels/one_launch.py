"""A step in one launch: staged writes, gather and slots of all groups, and no other operation."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton

from bt_kernels import arguments, launches, one_launch_code
from bt_kernels.captured import CapturedWrites
from bt_kernels.device_code import DESCRIPTOR_FIELDS, TARGET
from bt_kernels.fusions import FusedApply, FusedGatherSlots
from bt_kernels.host_ring import CapturedBuffer, HostRing
from bt_kernels.interface import TableState
from bt_kernels.layout import INT32_MAX, PAD_SLOT_ID, TableLayout
from bt_kernels.one_launch_code import (
    one_launch_captured_kernel,
    one_launch_carrying_kernel,
    one_launch_kernel,
    one_launch_options_kernel,
)
from bt_kernels.place import Place
from bt_kernels.staging import NO_WRITE, RECORD_FIELDS, StagedWrites

MARK_FIELDS: int = one_launch_code.MARK_FIELDS.value
STEP_RECORD_FIELDS: int = one_launch_code.STEP_RECORD_FIELDS.value
HEADER_FIELDS: int = one_launch_code.HEADER_FIELDS.value
OPTION_FIELDS: int = one_launch_code.OPTION_FIELDS.value
ADDRESS_BITS: int = one_launch_code.ADDRESS_BITS.value
DLPACK_CUDA = 2
WORDS = 2  # int32 elements of an int64


@dataclass(frozen=True)
class Shape:
    """How the requests of a step are cut into programs.

    Args:
        requests: that a program gathers and maps.
        columns: of a row that it copies at a time.
        tokens: that it maps at a time.
        num_warps: of a program.
    """

    requests: int
    columns: int
    tokens: int
    num_warps: int

    @cached_property
    def constants(self) -> tuple[int, ...]:
        """Values of the kernels' last `tl.constexpr` parameters, in their order."""
        return (PAD_SLOT_ID, self.requests, self.columns, self.tokens, BLOCK)


# One request a program has the shortest way from launch to store, as long as there are few. Where
# there are thousands, starting programs is what takes the time (0.65 us a thousand), and requests
# share one. A long prompt, or a long row, has more programs of more columns and tokens. Found by
# measurement on an H200.
FEW = Shape(requests=1, columns=128, tokens=32, num_warps=1)
MANY = Shape(requests=2, columns=128, tokens=8, num_warps=1)
LONG = Shape(requests=1, columns=512, tokens=256, num_warps=4)
# For a launch that never changes, which has to do for any step of a layout with few rows.
FIXED = Shape(requests=1, columns=256, tokens=128, num_warps=4)
SHAPES = (FEW, MANY, LONG)
MANY_ROWS = 1024  # of all groups
LONG_TOKENS = 256  # tokens per request, on average
LONG_COLUMNS = 2048
CHUNK = 256  # tokens or columns for which a tile of `LONG` has a program of its own
MAX_CHUNKS = 64
MAX_TILE_PROGRAMS = 2048  # that chunks make; without chunks there may be more
MAX_PADS = 16
BLOCK = 1024  # slots that are padded, or ids that are written, at a time
# Writes that the parameters of a launch carry: for each group a power of two up to the first, and
# for all groups together up to the second, which takes 4 KiB.
MOST_SLOTS = 64
MAX_WORDS = 512
FEWEST_SLOTS = 16
SLOTS_INTERPRETED = 4  # each takes long there
MAX_PROGRAMS = 1056  # of a launch that never changes: eight for each multiprocessor


class StepWrites:
    """Marks, records and block ids of one step after another, in buffers that kernels read.

    Args:
        layout: of the tables.
        first: elements of a buffer before the marks.
    """

    def __init__(self, layout: TableLayout, first: int = 0) -> None:
        num_marks = layout.num_groups * layout.max_num_reqs
        self._first = first
        self.records = num_marks * MARK_FIELDS  # where they begin, from the first mark on
        # Where they begin when they are applied by themselves, in records of that kernel.
        self.first_record = -(-(first + self.records) // RECORD_FIELDS)
        # A burst of writes grows a buffer.
        self.room = first + self.records + max(2 * num_marks, STEP_RECORD_FIELDS * 64)
        self.step = 0

    def size(self, staged: StagedWrites) -> int:
        """Elements of a buffer that a step needs."""
        ids = self._first + self.records + STEP_RECORD_FIELDS * staged.num_records
        return ids + staged.num_ids

    def pack(self, staged: StagedWrites, view: memoryview) -> int:
        """Fills a buffer; returns the number of the step, and 0 where nothing is staged."""
        if not staged.num_records:
            return 0
        self.step += 1
        if self.step == INT32_MAX:
            raise OverflowError("2,147,483,647 steps were prepared; make new tables")
        first = self._first
        staged.pack_step(view[first:] if first else view, self.records, self.step)
        return self.step


class CarryingLaunch:
    """Launches of steps whose writes are parameters: few for each group, and one block id a row.

    The driver copies parameters when it is called, so that nothing has to be kept for the device.
    Triton's own call takes longer the more parameters there are, and compiles anew for values of
    some: these launches go by the driver, whatever the launch path.

    Args:
        layout: of the tables.
        place: where the tables live, with the compiled module unless kernels are interpreted.
        slots: writes that a launch carries for a group.
    """

    def __init__(self, layout: TableLayout, place: Place, slots: int) -> None:
        self.slots = slots
        # The interpreter cannot index parameters.
        self._constants = (layout.num_groups, slots, launches.COMPILES)
        self._place = place
        self.quick: Any = None  # told of every kernel that is loaded
        self.words = memoryview(array("q", [NO_WRITE] * (layout.num_groups * slots)))
        self._kept: dict[tuple[Any, ...], Callable[..., None]] = {}
        if place.launcher is not None:
            self._current_stream = triton.runtime.driver.active.get_current_stream

    def launch(
        self,
        grid: tuple[int, int, int],
        arguments: tuple[Any, ...],
        shape: Shape,
        index_dtype: torch.dtype,
    ) -> bool:
        """Launches the step whose writes are in `words`; `False` where the driver cannot."""
        if self._place.launcher is None:
            one_launch_carrying_kernel[grid](
                *arguments, tuple(self.words), *self._constants, *shape.constants
            )
            return True
        launch = self._kept.get((shape, index_dtype))
        if launch is None:
            launch = self._load(arguments, shape)
            if launch is None:
                return False
            self._kept[shape, index_dtype] = launch
            if self.quick is not None:
                self.quick.add(SHAPES.index(shape), index_dtype is torch.int64, launch)
        launch(self._current_stream(self._place.index), grid, arguments, self.words)
        return True

    def _load(self, arguments: tuple[Any, ...], shape: Shape) -> Callable[..., None] | None:
        # Odd, or Triton would take all to be multiples of 16. A grid of none launches nothing.
        words = (NO_WRITE + 1,) * len(self.words)
        try:
            constants = (*self._constants, *shape.constants)
            launched = (0, 1, 1), (*arguments, words), constants, (), shape.num_warps
            handle = self._place.run(launches.launch_jit, one_launch_carrying_kernel, *launched)
        except Exception as error:
            # It names a parameter as Triton does now. Steps can do without.
            warnings.warn(f"writes are not carried by launches: {error}", stacklevel=2)
            return None
        num_arguments = len(arguments) + len(words)
        launch = launches.direct_launch(self._place, handle, num_arguments)
        # The kernel finds a word by its distance from the first.
        if launch is None or launch.side_by_side < len(words):
            return None
        return launch


@dataclass(frozen=True)
class Options:
    """What a step has beyond the plain path, as kernels are told it; see `one_launch_code`.

    Args:
        num_computed_tokens: `None` where there is no sliding window.
        out_ptrs: `None` for the input tables.
        out: `None` for `slot_mappings`.
    """

    num_computed_tokens: torch.Tensor | None
    out_ptrs: torch.Tensor | None
    out: torch.Tensor | None

    def __bool__(self) -> bool:
        return not (self.num_computed_tokens is None and self.out_ptrs is None and self.out is None)

    def words(self, tables: OneLaunch) -> tuple[int, ...]:
        """The int64 that a program reads."""
        out = tables.slot_mappings if self.out is None else self.out
        if self.out_ptrs is None:
            descriptors = tables.descriptors
            address = descriptors.data_ptr() + TARGET.value * descriptors.itemsize
            apart = DESCRIPTOR_FIELDS.value
        else:
            address, apart = self.out_ptrs.data_ptr(), 1
        computed = self.num_computed_tokens
        of_tokens = 0 if computed is None else computed.data_ptr()
        return of_tokens, address, out.data_ptr(), apart, out.stride(0), out.shape[1], 0, 0


class FixedLaunch:
    """The launch of a step whose grid and arguments never change: what varies is in headers.

    Args:
        tables: that are launched for.
        launcher: the compiled module of that name; `None`: headers are written by numpy.
        applied: told which step was launched, int32; `None`: nobody asks.
    """

    def __init__(
        self, tables: OneLaunch, launcher: ModuleType | None, applied: torch.Tensor | None = None
    ) -> None:
        layout = tables.layout
        num_rows = layout.num_groups * layout.max_num_reqs
        self._shape = MANY if num_rows > MANY_ROWS else FIXED
        num_tiles = -(-layout.max_num_reqs // self._shape.requests)
        num_pads = _num_pads(layout.max_num_batched_tokens)
        # Enough for any batch without writes: more would wait for each other's headers.
        self.num_programs = min(MAX_PROGRAMS, layout.num_groups * (num_tiles + num_pads))
        self.body = self.num_programs * (HEADER_FIELDS + OPTION_FIELDS) * WORDS  # marks begin there
        self._num_groups = layout.num_groups
        self._constants = (tables.sharded, *self._shape.constants)
        self._launcher = launcher
        self._applied = applied

    def launch(self, tables: OneLaunch, staging: torch.Tensor, has_options: bool) -> None:
        """Launches whatever step the headers in `staging` say when it runs."""
        tables.launch(
            one_launch_captured_kernel,
            (self.num_programs, 1, 1),
            (
                *(tables.descriptors, staging, self._applied),
                *(tables.layout.num_groups, tables.layout.max_num_reqs),
            ),
            (self.num_programs, has_options, *self._constants),
            (),
            self._shape.num_warps,
        )

    def write(
        self,
        view: memoryview,
        tables: OneLaunch,
        step: int,
        num_records: int,
        batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        num_rows: int,
        longest: int,
        options: Options,
    ) -> None:
        """Writes the headers, and the options if there are any.

        Args:
            view: where they go, at its start.
            tables: that are launched for.
            step: its number, or 0 where nothing is staged.
            num_records: that are staged.
            batch: `idx_mapping`, `query_start_loc` and `positions`.
            num_rows: to gather or to zero.
            longest: columns of the longest row.
            options: of the step.
        """
        idx_mapping, query_start_loc, positions = batch
        num_reqs = idx_mapping.shape[0]
        out = tables.slot_mappings if options.out is None else options.out
        num_chunks = self._num_chunks(num_reqs, num_rows, positions.shape[0], longest)
        self._repeat(
            view,
            0,
            (
                num_reqs << ADDRESS_BITS | _address(idx_mapping),
                num_rows << ADDRESS_BITS | _address(query_start_loc),
                (num_chunks << 8 | _num_pads(out.shape[1])) << ADDRESS_BITS | _address(positions),
                step << 32 | num_records << 1 | (idx_mapping.itemsize == 8),
            ),
        )
        if options:
            self._repeat(view, self.num_programs * HEADER_FIELDS * WORDS, options.words(tables))

    def _num_chunks(self, num_reqs: int, num_rows: int, num_tokens: int, longest: int) -> int:
        """Programs that share a tile."""
        shape = self._shape
        spare = longest // shape.columns
        if num_tokens > LONG_TOKENS * (num_reqs or 1):
            spare = max(spare, (num_tokens - num_reqs) // shape.tokens)
        # A chunk of eight turns at most, as long as there are programs.
        num_tiles = -(-num_rows // shape.requests) * self._num_groups
        most = MAX_TILE_PROGRAMS // (num_tiles or 1)
        return max(1, min(MAX_CHUNKS, -(-spare // 8), most))

    def write_records_only(self, view: memoryview, step: int, num_records: int) -> None:
        """Writes headers of a step that applies what is staged, and has no batch."""
        self._repeat(view, 0, (0, 0, 0, step << 32 | num_records << 1))

    def _repeat(self, view: memoryview, first: int, words: tuple[int, ...]) -> None:
        """Writes the same words for each program, from an element on."""
        if self._launcher is not None:
            self._launcher.repeat(view, first, self.num_programs, words)
            return
        size = len(words)
        found = np.frombuffer(view, np.int64, self.num_programs * size, first * view.itemsize)
        found.reshape(self.num_programs, size)[:] = words


class OneLaunch(FusedApply, FusedGatherSlots):
    """A whole step in one launch; its parts, when they are called alone, as in `fused`.

    Arguments of the constructor are those of `DeviceState`.
    """

    _quick: Callable[..., int | None] | None = None

    def __init__(
        self,
        layout: TableLayout,
        device: torch.device | str,
        *,
        steps_in_flight: int | None = None,
        validate: bool = False,
    ) -> None:
        super().__init__(layout, device, steps_in_flight=steps_in_flight, validate=validate)
        slots = 0 if self.sharded else self._slots_to_carry()
        self._carrying = None
        if slots:
            self._carrying = CarryingLaunch(layout, self.place, slots)
            self._quick = self._make_quick(self._carrying)

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
        if num_computed_tokens is not None and not self._has_window:
            arguments.check_computed(self.layout, self.device, num_computed_tokens)
            num_computed_tokens = None
        if (
            self._quick is not None
            and num_computed_tokens is None
            and out is None
            and out_ptrs is None
            and slots_out is None
            and (self._captured_writes is None or not self._captured_writes.is_pending)
            and not self.validate
        ):
            batch_size = self._quick(
                *(idx_mapping, query_start_loc, positions, num_reqs_padded, num_tokens_padded),
                *(self.num_dirty_rows, self._staged.longest),
            )
            if batch_size is not None:
                self._staged.clear()
                self.num_dirty_rows = batch_size
                views = self._views_of_tables(num_reqs_padded)
                return views, self._views_of_slots(num_tokens_padded)
        self.refuse_capture("prepare_step")
        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping)
        arguments.check_rows(self.layout, num_reqs, num_reqs_padded)
        window, ptrs = self._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        slots = self._check_slots(
            num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out
        )
        if self._captured_writes is not None:
            self._captured_writes.settle(self)
        num_rows, dirty = self._rows_to_gather(num_reqs, num_reqs_padded, out)
        self._launch_step(
            idx_mapping, query_start_loc, positions, num_reqs, num_rows, window, ptrs, slots_out
        )
        # Not before: a launch that fails leaves the writes to the next.
        self._staged.clear()
        self.num_dirty_rows = dirty
        return self._views(num_reqs_padded, out), slots

    def restore(self, state: TableState) -> None:
        super().restore(state)
        self._staged.longest = int(self.num_blocks.max())

    def _make_ring(self, _size: int, steps_in_flight: int | None) -> HostRing:
        self._writes = StepWrites(self.layout)
        return super()._make_ring(self._writes.room, steps_in_flight)

    def _publish(self) -> list[int]:
        # Behind the marks, which are of no meaning to who applies.
        staged, first = self._staged, self._writes.first_record * RECORD_FIELDS
        size = first + RECORD_FIELDS * staged.num_records + staged.num_ids
        return staged.pack(self._ring.advance(size), first)

    def _launch_apply(self, records_per_group: list[int]) -> None:
        first = self._writes.first_record
        launches.apply_writes(self, self._ring.current, first, sum(records_per_group))

    def _make_quick(self, carrying: CarryingLaunch) -> Callable[..., int | None] | None:
        """What checks, packs and launches a step in one call; `None` where that cannot be.

        It does what the Python code does, and leaves to that whatever is not as usual.
        """
        # An older torch does not show tensors to C.
        if self._launcher is None or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            return None
        try:
            carrying.quick = self._launcher.Step(
                tensor_type=torch.Tensor,
                pack=self._staged.pack_words,
                words=carrying.words,
                slots=carrying.slots,
                descriptors=self.descriptors.data_ptr(),
                device_type=DLPACK_CUDA,
                index=self.device.index,
                device=self.place.native,
                num_groups=self.layout.num_groups,
                max_num_reqs=self.layout.max_num_reqs,
                max_num_tokens=self.layout.max_num_batched_tokens,
                num_pads=self._num_pads,
                widest=self._widest,
                requests=tuple(shape.requests for shape in SHAPES),
                many_rows=MANY_ROWS,
                long_tokens=LONG_TOKENS,
                long_columns=LONG_COLUMNS,
                chunk=CHUNK,
                max_chunks=MAX_CHUNKS,
                max_tile_programs=MAX_TILE_PROGRAMS,
            )
        except ValueError:  # another version of DLPack
            return None
        return carrying.quick

    def _slots_to_carry(self) -> int:
        """Writes for each group that the parameters of a launch carry; 0 if that cannot be."""
        if not launches.COMPILES:
            return SLOTS_INTERPRETED
        if self._launcher is None:
            return 0
        most = min(MOST_SLOTS, MAX_WORDS // self.layout.num_groups)
        return 1 << most.bit_length() - 1 if most >= FEWEST_SLOTS else 0

    def _launch_step(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs: int,
        num_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out_ptrs: torch.Tensor | None,
        out: torch.Tensor | None,
    ) -> None:
        """Launches the whole step, with all that is staged."""
        staged, writes, num_groups = self._staged, self._writes, self.layout.num_groups
        num_records = staged.num_records
        plain = num_computed_tokens is None and out_ptrs is None and out is None
        if (
            plain
            and self._carrying
            and staged.pack_words(self._carrying.words, self._carrying.slots)
        ):
            if self._carry(idx_mapping, query_start_loc, positions, num_reqs, num_rows):
                return
            self._carrying = None  # for good: the kernel is instrumented, say
        if not num_records:
            # Reads no host memory, which is what takes the time of the other launch.
            batch = (idx_mapping, query_start_loc, positions)
            launches.gather_slots(self, *batch, num_rows, num_computed_tokens, out_ptrs, out)
            return
        step = writes.pack(staged, self._ring.advance(writes.size(staged)))
        shape, num_chunks = self._cut(num_reqs, num_rows, positions.shape[0])
        num_pads = self._num_pads if out is None else _num_pads(out.shape[1])
        arguments = (
            self.descriptors,
            self._ring.current,
            idx_mapping,
            query_start_loc,
            positions,
            writes.records,
            num_records,
            num_reqs,
            num_rows,
            step,
            self.layout.max_num_reqs,
            num_chunks,
            num_pads,
        )
        num_tiles = -(-num_rows // shape.requests)
        grid = (num_records + num_groups * (num_tiles * num_chunks + num_pads), 1, 1)
        if plain and not self.sharded:
            inputs = (idx_mapping,)
            self.launch(
                one_launch_kernel, grid, arguments, shape.constants, inputs, shape.num_warps
            )
            self._ring.note_reader()
            return
        stride, length = (None, None) if out is None else (out.stride(0), out.shape[1])
        self.launch(
            one_launch_options_kernel,
            grid,
            (*arguments, num_computed_tokens, out_ptrs, out, stride, length),
            (self.sharded, *shape.constants),
            (idx_mapping, num_computed_tokens, out_ptrs, out),
            shape.num_warps,
        )
        self._ring.note_reader()

    def _carry(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs: int,
        num_rows: int,
    ) -> bool:
        """Launches the whole step with the words that were packed, if that can be."""
        assert self._carrying is not None
        shape, num_chunks = self._cut(num_reqs, num_rows, positions.shape[0])
        num_pads = self._num_pads
        num_tiles = -(-num_rows // shape.requests)
        num_programs = self.layout.num_groups * (1 + num_tiles * num_chunks + num_pads)
        return self._carrying.launch(
            (num_programs, 1, 1),
            (
                *(self.descriptors, idx_mapping, query_start_loc, positions),
                *(num_reqs, num_rows, num_chunks, num_pads),
            ),
            shape,
            idx_mapping.dtype,
        )

    def _cut(self, num_reqs: int, num_rows: int, num_tokens: int) -> tuple[Shape, int]:
        """The shape of a step's programs, and how many share a tile."""
        longest = self._longest(num_reqs, num_rows)
        if num_tokens > LONG_TOKENS * (num_reqs or 1) or longest > LONG_COLUMNS:
            spare = max(num_tokens - num_reqs, longest)
            # Where there are many rows, only some of them are long: each chunk is a program more.
            most = MAX_TILE_PROGRAMS // (num_rows * self.layout.num_groups or 1)
            return LONG, max(1, min(MAX_CHUNKS, spare // CHUNK, most))
        if num_rows * self.layout.num_groups > MANY_ROWS:
            return MANY, 1
        return FEW, 1

    def _longest(self, num_reqs: int, num_rows: int) -> int:
        """Columns of the longest row that may have to be filled."""
        if num_rows > num_reqs:  # rows that are zeroed whole
            return self._widest
        return self._staged.longest

    @cached_property
    def _widest(self) -> int:
        return max(self.layout.widths)

    @cached_property
    def _num_pads(self) -> int:
        return _num_pads(self.layout.max_num_batched_tokens)

    def _make_captured_writes(self) -> CapturedWrites:
        return CapturedLaunch(self, self._launcher)

    def _launch_captured(
        self,
        _idx_mapping: torch.Tensor,
        _query_start_loc: torch.Tensor,
        _positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        num_computed_tokens: torch.Tensor | None,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        assert isinstance(self._captured_writes, CapturedLaunch)
        self._captured_writes.launch_step(
            self, self._has_window and num_computed_tokens is not None
        )
        return self._views(num_reqs_padded, None), self._views_of_slots(num_tokens_padded)

    def _publish_for_replay(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_computed_tokens: torch.Tensor | None,
    ) -> None:
        self.refuse_capture("publish")
        writes = self._captured_writes
        assert isinstance(writes, CapturedLaunch)
        if not writes.has_room(self._staged):
            self.apply_staged_writes()
        options = Options(num_computed_tokens if self._has_window else None, None, None)
        batch = (idx_mapping, query_start_loc, positions)
        # Not left to the replay, which may never be made.
        self._zero_dirty_rows(num_reqs_padded)
        writes.publish_step(self, self._staged, batch, num_reqs_padded, options)
        self._staged.clear()


class OneLaunchGraph(OneLaunch):
    """A whole step by the replay of a CUDA graph that was captured once for each host buffer.

    Where kernels are interpreted, what the graph holds is launched instead.
    """

    @property
    def launch_paths(self) -> tuple[str, ...]:
        """Triton's call: a step is a replay, however the tables launch what else there is."""
        return super().launch_paths[:1]

    def _make_ring(self, _size: int, _steps_in_flight: int | None) -> HostRing:
        self._fixed = FixedLaunch(self, self._launcher)
        self._writes = StepWrites(self.layout, self._fixed.body)
        # By address of a buffer, and whether the step has options.
        self._replays: dict[tuple[int, bool], Callable[[], None]] = {}
        # Steps without writes need a buffer too, and are not among those that are promised.
        return super(OneLaunch, self)._make_ring(self._writes.room, None)

    def _slots_to_carry(self) -> int:
        return 0

    def _launch_step(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs: int,
        num_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out_ptrs: torch.Tensor | None,
        out: torch.Tensor | None,
    ) -> None:
        staged, writes = self._staged, self._writes
        view = self._ring.advance(writes.size(staged))
        step = writes.pack(staged, view)
        batch = (idx_mapping, query_start_loc, positions)
        options = Options(num_computed_tokens, out_ptrs, out)
        # The launch has their addresses alone.
        self._addressed = (batch, options)
        longest = self._longest(num_reqs, num_rows)
        self._fixed.write(view, self, step, staged.num_records, batch, num_rows, longest, options)
        staging = self._ring.current
        which = (staging.data_ptr(), bool(options))
        replay = self._replays.get(which)
        if replay is None:
            replay = partial(self._fixed.launch, self, staging, bool(options))
            replay()
            if self._on_gpu:
                self._replays[which] = self._capture(replay)
        else:
            replay()
        self._ring.note_reader()

    def _capture(self, launch: Callable[[], None]) -> Callable[[], None]:
        """A launch as a graph, or as it is where that fails; it has been made before."""
        try:
            # Not by `torch.cuda.graph`, which waits for the device and collects garbage.
            with self.place.current(), torch.cuda.stream(torch.cuda.Stream(self.device)):
                graph = torch.cuda.CUDAGraph()
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    launch()
                finally:
                    graph.capture_end()
        except RuntimeError:
            # This step has been launched, and the next ones can be, too.
            return launch
        return launches.direct_replay(self.place, graph)


class CapturedLaunch(CapturedWrites):
    """The buffer from which replays make a whole step in one launch.

    Args:
        tables: whose step it is.
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
        self._pending = (0, 0)  # step and number of records, if it was perhaps not replayed

    @property
    def is_pending(self) -> bool:
        return self._pending[0] != 0

    def launch_step(self, tables: OneLaunch, has_options: bool) -> None:
        """Launches whatever step is published when the launch runs."""
        self._fixed.launch(tables, self._buffer.tensor, has_options)
        self._buffer.note_reader()

    def has_room(self, staged: StagedWrites) -> bool:
        return self._writes.size(staged) <= self._buffer.tensor.numel()

    def publish_step(
        self,
        tables: OneLaunch,
        staged: StagedWrites,
        batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        num_rows: int,
        options: Options,
    ) -> None:
        """Fills the buffer for the next replay, once the last one has read it.

        Writes that were published before and never replayed are applied first.
        """
        self.settle(tables)
        view = self._buffer.wait()
        num_records = staged.num_records
        step = self._writes.pack(staged, view)
        longest = tables._longest(0, num_rows)
        self._fixed.write(view, tables, step, num_records, batch, num_rows, longest, options)
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


def _address(tensor: torch.Tensor) -> int:
    """Where a tensor begins.

    Raises:
        ValueError: where a header has too few bits for it.
    """
    address = tensor.data_ptr()
    if address >> ADDRESS_BITS:
        raise ValueError(f"a tensor is at {address:#x}; expected an address of {ADDRESS_BITS} bits")
    return address


def _num_pads(num_slots: int) -> int:
    """Programs that pad the slots of a group."""
    return min(MAX_PADS, -(-num_slots // BLOCK)) or 1
