"""A step in one launch: staged writes, gather and slots of all groups, and no other operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch

from bt_kernels import launches
from bt_kernels.device_code import (
    one_launch_kernel,
    one_launch_options_kernel,
)
from bt_kernels.device_tables import CapturedWrites, arguments
from bt_kernels.fusions import FusedApply, FusedGatherSlots
from bt_kernels.interface import TableState
from bt_kernels.layout import TableLayout
from bt_kernels.one_launch.captured import CapturedLaunch
from bt_kernels.one_launch.fixed import Options
from bt_kernels.one_launch.shapes import (
    DLPACK_CUDA,
    FEW,
    FEWEST_SLOTS,
    ID_WORDS,
    ID_WORDS_INTERPRETED,
    MANY,
    MANY_ROWS,
    MAX_CHUNKS,
    MAX_SPANS,
    MAX_WIDE_PROGRAMS,
    MAX_WORDS,
    MOST_SLOTS,
    OWN_COLUMNS,
    SHAPES,
    SLOTS_INTERPRETED,
    SPAN,
    WIDE_COLUMNS,
    Cut,
    pads_for,
)
from bt_kernels.one_launch.writes import CarryingLaunch, StepWrites
from bt_kernels.staging import RECORD_FIELDS, HostRing


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
            id_words = ID_WORDS if launches.COMPILES else ID_WORDS_INTERPRETED
            self._carrying = CarryingLaunch(layout, self.place, slots, id_words)
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
        # Not earlier: if a launch fails, the next one makes the writes.
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
        # After the marks, which the kernel that applies writes ignores.
        staged, first = self._staged, self._writes.first_record * RECORD_FIELDS
        size = first + RECORD_FIELDS * staged.num_records + staged.num_ids
        return staged.pack(self._ring.advance(size), first)

    def _launch_apply(self, records_per_group: list[int]) -> None:
        first = self._writes.first_record
        launches.apply_writes(self, self._ring.current, first, sum(records_per_group))

    def _make_quick(self, carrying: CarryingLaunch) -> Callable[..., int | None] | None:
        """A function that checks, packs and launches a step in one call; `None` if not possible.

        It does the same as the Python code, and leaves unusual steps to that.
        """
        # Older versions of torch do not expose tensors to C.
        if self._launcher is None or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            return None
        try:
            carrying.quick = self._launcher.Step(
                tensor_type=torch.Tensor,
                pack=self._staged.pack_words,
                words=carrying.words,
                slots=carrying.slots,
                num_words=carrying.num_words,
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
                tokens=tuple(shape.tokens for shape in SHAPES),
                many_rows=MANY_ROWS,
                span=SPAN,
                max_spans=MAX_SPANS,
                own_columns=OWN_COLUMNS,
                wide_columns=WIDE_COLUMNS,
                max_chunks=MAX_CHUNKS,
                max_wide_programs=MAX_WIDE_PROGRAMS,
            )
        except ValueError:  # another version of DLPack
            return None
        return carrying.quick

    def _slots_to_carry(self) -> int:
        """How many writes per group the parameters of a launch carry; 0 if not possible."""
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
        if plain and self._carrying:
            num_apart = staged.pack_words(self._carrying.words, self._carrying.slots)
            if num_apart >= 0:
                batch = (idx_mapping, query_start_loc, positions)
                if self._carry(batch, num_reqs, num_rows, num_apart):
                    return
        if not num_records:
            # Reads no host memory, which takes most of the time of the other launch.
            batch = (idx_mapping, query_start_loc, positions)
            launches.gather_slots(self, *batch, num_rows, num_computed_tokens, out_ptrs, out)
            return
        step = writes.pack(staged, self._ring.advance(writes.size(staged)))
        cut = self._cut(num_reqs, num_rows, positions.shape[0])
        num_pads = self._num_pads if out is None else pads_for(out.shape[1])
        shape = cut.shape
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
            *cut.numbers,
            num_pads,
        )
        grid = (num_records + num_groups * (cut.num_programs + num_pads), 1, 1)
        if plain and not self.sharded:
            inputs = (idx_mapping,)
            self.launch(
                one_launch_kernel,
                grid,
                arguments,
                shape.constants,
                inputs,
                shape.num_warps,
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
        batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        num_reqs: int,
        num_rows: int,
        num_apart: int,
    ) -> bool:
        """Launches the whole step with the packed words; returns whether that was possible.

        Args:
            batch: `idx_mapping`, `query_start_loc` and `positions`.
            num_reqs: requests of the batch.
            num_rows: rows to gather or zero.
            num_apart: programs of a group that write intervals of several ids.
        """
        assert self._carrying is not None
        cut = self._cut(num_reqs, num_rows, batch[2].shape[0])
        num_pads = self._num_pads
        num_programs = self.layout.num_groups * (1 + num_apart + cut.num_programs + num_pads)
        return self._carrying.launch(
            (num_programs, 1, 1),
            (self.descriptors, *batch, num_reqs, num_rows, num_apart, *cut.numbers, num_pads),
            cut.shape,
            batch[0].dtype,
            has_ids=num_apart > 0,
        )

    def _cut(self, num_reqs: int, num_rows: int, num_tokens: int) -> Cut:
        """How a step is cut into programs."""
        shape = MANY if num_rows * self.layout.num_groups > MANY_ROWS else FEW
        num_wide, num_chunks = self._wide_rows(num_reqs, num_rows)
        num_tiles = -(-num_rows // shape.requests)
        return Cut(shape, num_tiles, shape.spans(num_reqs, num_tokens), num_wide, num_chunks)

    def _wide_rows(self, num_reqs: int, num_rows: int) -> tuple[int, int]:
        """How many of the last rows have programs for their columns, and how many each."""
        num_padded = num_rows - num_reqs  # these are zeroed whole
        longest = self._staged.longest
        num_wide = num_rows if longest > OWN_COLUMNS else num_padded
        if num_padded:
            longest = max(longest, self._widest)
        if not num_wide or longest <= OWN_COLUMNS:
            return 0, 0
        most = max(1, MAX_WIDE_PROGRAMS // (num_wide * self.layout.num_groups))
        return num_wide, min(MAX_CHUNKS, -(-(longest - OWN_COLUMNS) // WIDE_COLUMNS), most)

    @cached_property
    def _widest(self) -> int:
        return max(self.layout.widths)

    @cached_property
    def _num_pads(self) -> int:
        return pads_for(self.layout.max_num_batched_tokens)

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
        # Not left to the replay, which may never happen.
        self._zero_dirty_rows(num_reqs_padded)
        writes.publish_step(self, self._staged, batch, num_reqs_padded, options)
        self._staged.clear()
