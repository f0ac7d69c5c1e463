"""A step in one launch: staged writes, gather and slots of all groups, and no other operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from bt_kernels import launches
from bt_kernels.device_tables import CapturedWrites, arguments
from bt_kernels.device_tables.warming import Inputs, NotedLaunches
from bt_kernels.fusions import FusedApply, FusedGatherSlots
from bt_kernels.interface import TableState
from bt_kernels.layout import TableLayout
from bt_kernels.one_launch.captured import CapturedLaunch
from bt_kernels.one_launch.carrying import CarryingLaunch, rows_are_aligned
from bt_kernels.one_launch.fixed import FixedLaunch
from bt_kernels.one_launch.native_step import native_step
from bt_kernels.one_launch.pinned import PinnedSteps
from bt_kernels.one_launch.shapes import (
    FEW,
    MANY,
    MAX_CHUNKS,
    MAX_WIDE_PROGRAMS,
    OWN_COLUMNS,
    WIDE_COLUMNS,
    Cut,
    many_rows,
)
from bt_kernels.one_launch.steps import Batch, Options
from bt_kernels.staging import AnyStagedWrites

if TYPE_CHECKING:
    from bt_kernels.native import Launcher
    from bt_kernels.native.launcher import Step


class OneLaunch(FusedApply, FusedGatherSlots):
    """A whole step in one launch, and each of its parts in one, cut in the same way.

    Where no launch can carry writes, parts that are called alone are as in `fused`.

    The constructor takes the arguments of `DeviceState`. Where operations are made in C, an object
    has them as attributes of its own, except for those that its class has others for when it is
    built: a subclass may override them. They refer to the object weakly.
    """

    carries = True
    """Have launches carry staged writes, where that is possible."""

    captures = False
    """Make steps that do not carry their writes by replaying a captured launch."""

    _quick: Step | None = None
    _carrying: CarryingLaunch | None = None
    _pinned: PinnedSteps | None = None

    def __init__(
        self,
        layout: TableLayout,
        device: torch.device | str,
        *,
        steps_in_flight: int | None = None,
        validate: bool = False,
    ) -> None:
        super().__init__(layout, device, steps_in_flight=steps_in_flight, validate=validate)
        if self.carries and CarryingLaunch.is_possible(self):
            self._carrying = CarryingLaunch(self)
            self._make_quick()
        else:
            self._pinned = PinnedSteps(self, captures=self.captures)

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
        self.refuse_capture("prepare_step")
        wide = out is not None
        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping, wide=wide)
        arguments.check_rows(self.layout, num_reqs, num_reqs_padded, wide=wide)
        window = self._check_options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        slots = self._check_slots(
            num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out
        )
        self._checked_dirty_rows()
        if self._captured_writes is not None:
            self._captured_writes.settle(self)
        num_rows, dirty = self._rows_to_gather(num_reqs, num_reqs_padded, out)
        batch = Batch(idx_mapping, query_start_loc, positions, num_reqs, num_rows)
        self._launch_step(batch, Options(window, out, out_ptrs, slots_out))
        # Not earlier: if a launch fails, the next one makes the writes.
        self._staged.clear()
        self.num_dirty_rows = dirty
        return self._views(num_reqs_padded, out), slots

    def apply_staged_writes(self) -> None:
        if self._captured_writes is not None:
            self._captured_writes.settle(self)
        if not self._staged:
            return
        self.refuse_capture("apply_staged_writes")
        nothing = Batch(*self._unread, 0, 0, gathers=False, maps=False)
        carrying = self._carrying_for("_launch_apply")
        if carrying is not None and carrying.run(self, nothing, Options()):
            self._staged.clear()
        else:
            super().apply_staged_writes()

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        options = (out, out_ptrs, num_computed_tokens)
        carrying = self._carrying_for("_launch_gather")
        if carrying is None:
            return super().gather_block_tables(idx_mapping, num_reqs_padded, *options)
        wide = out is not None
        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping, wide=wide)
        arguments.check_rows(self.layout, num_reqs, num_reqs_padded, wide=wide)
        window = self._check_options(num_reqs_padded, *options)
        if self.validate and not self.place.is_capturing():
            arguments.check_rows_exist(self.layout, idx_mapping)
        num_rows, dirty = self._rows_to_gather(num_reqs, num_reqs_padded, out)
        batch = Batch(idx_mapping, *self._unread[1:], num_reqs, num_rows, maps=False)
        if num_rows and not carrying.run_part(self, batch, Options(window, out, out_ptrs)):
            _, pointers = self._options(num_reqs_padded, *options)
            self._launch_gather(idx_mapping, num_rows, window, pointers)
        self.num_dirty_rows = dirty
        return self._views(num_reqs_padded, out)

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        tokens = (query_start_loc, positions, num_tokens_padded, out)
        carrying = self._carrying_for("_launch_slots")
        if carrying is None:
            return super().compute_slot_mappings(idx_mapping, *tokens)
        wide = out is not None
        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping, wide=wide)
        views = self._check_slots(num_reqs, idx_mapping, *tokens)
        batch = Batch(idx_mapping, query_start_loc, positions, num_reqs, num_reqs, gathers=False)
        if not carrying.run_part(self, batch, Options(slots=out)):
            self._launch_slots(idx_mapping, query_start_loc, positions, out)
        return views

    def gather_and_compute_slot_mappings(
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
        tokens = (query_start_loc, positions)
        options = (out, out_ptrs, num_computed_tokens)
        if self._carrying is None:
            return super().gather_and_compute_slot_mappings(
                *(idx_mapping, *tokens, num_reqs_padded, num_tokens_padded),
                out=out,
                out_ptrs=out_ptrs,
                num_computed_tokens=num_computed_tokens,
                slots_out=slots_out,
            )
        wide = out is not None
        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping, wide=wide)
        arguments.check_rows(self.layout, num_reqs, num_reqs_padded, wide=wide)
        window = self._check_options(num_reqs_padded, *options)
        slots = self._check_slots(num_reqs, idx_mapping, *tokens, num_tokens_padded, slots_out)
        num_rows, dirty = self._rows_to_gather(num_reqs, num_reqs_padded, out)
        batch = Batch(idx_mapping, *tokens, num_reqs, num_rows)
        given = Options(window, out, out_ptrs, slots_out)
        if not self._carrying.run_part(self, batch, given):
            _, pointers = self._options(num_reqs_padded, *options)
            launches.gather_slots(self, idx_mapping, *tokens, num_rows, window, pointers, slots_out)
        self.num_dirty_rows = dirty
        return self._views(num_reqs_padded, out), slots

    def _carrying_for(self, launch: str) -> CarryingLaunch | None:
        """Return the launches of a part; `None` where a variant overrides its method `launch`."""
        is_own = getattr(type(self), launch) is getattr(OneLaunch, launch)
        return self._carrying if is_own else None

    @property
    def _unread(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tensors in place of a batch's that a part of a step does not read."""
        return self._no_requests, self.descriptors.view(torch.int32), self.descriptors

    def restore(self, state: TableState) -> None:
        super().restore(state)
        self._staged.longest = int(self.num_blocks.max())

    def _launch_step(self, batch: Batch, options: Options) -> None:
        """Launch the whole step, with all staged writes."""
        if self._carrying is not None and self._carrying.run(self, batch, options):
            return
        if self._pinned is None:
            self._pinned = PinnedSteps(self, captures=self.captures)
        self._pinned.run(self, batch, options)

    def _make_views(self) -> None:
        super()._make_views()
        self.rows_are_aligned = rows_are_aligned([*self.block_tables, *self.input_block_tables])
        self._make_quick()

    def _stage_in(self, staged: AnyStagedWrites) -> None:
        super()._stage_in(staged)
        self._make_quick()

    def _make_quick(self) -> None:
        """Make the step in C for the current tables and staged writes, if possible."""
        if self._carrying is not None:
            launches_so = all(
                getattr(type(self), launch) is getattr(OneLaunch, launch)
                for launch in ("_launch_step", "_launch_apply", "_launch_gather", "_launch_slots")
            )
            self._quick = native_step(self, self._carrying) if launches_so else None
            self._carrying.attach(self._quick)
            if self._quick is not None and self.place.launcher is not None:
                self._call_in_c(self.place.launcher)

    def _call_in_c(self, launcher: Launcher) -> None:
        """Expose operations in C as this object's, unless its class overrides them.

        A Python function on the way to a launch takes several microseconds in a step, since an
        engine's caches have lost its code. The methods here do the rest, and refuse.
        """
        calls = launcher.Calls(self)
        for name, method in _IN_C.items():
            if getattr(type(self), name) is method:
                # Not by `__dict__`, as in `_stage_in`.
                setattr(self, name, getattr(calls, name))

    def _note_launches(self, noted: NotedLaunches, inputs: Inputs) -> None:
        super()._note_launches(noted, inputs)
        for applied in (None, torch.empty(1, dtype=torch.int32, device=self.device)):
            fixed = FixedLaunch(self, None, applied)
            for has_options in (False, True):
                fixed.launch(noted, self._ring.current, has_options=has_options)

    def _other_loads(self) -> list[Callable[[], object]]:
        if self._carrying is None:
            return []
        binaries = self._carrying.binaries(aligned=self.rows_are_aligned)
        return [partial(self._carrying.load, binary) for binary in binaries]

    def cut_of(self, batch: Batch) -> Cut:
        """Return the division of a step into programs."""
        # A caller's tables may have more rows. Shapes that the layout itself never takes would have
        # to be compiled then.
        num_rows = min(batch.num_rows, self.layout.max_num_reqs)
        shape = MANY if num_rows * self.layout.num_groups > many_rows() else FEW
        num_wide, num_chunks = self._wide_rows(batch) if batch.gathers else (0, 0)
        num_tiles = -(-batch.num_rows // shape.requests)
        num_spans = shape.spans(batch.positions.shape[0]) if batch.maps else 0
        return Cut(shape, num_tiles, num_spans, num_wide, num_chunks)

    def longest_of(self, batch: Batch) -> int:
        """Return the most columns of any row in a batch; rows of the padding are zeroed whole."""
        longest = self._staged.longest
        return max(longest, self.widest) if batch.num_rows > batch.num_reqs else longest

    def _wide_rows(self, batch: Batch) -> tuple[int, int]:
        """Return how many of the last rows have programs for their columns, and how many each."""
        num_padded = batch.num_rows - batch.num_reqs
        num_wide = batch.num_rows if self._staged.longest > OWN_COLUMNS else num_padded
        longest = self.longest_of(batch)
        if not num_wide or longest <= OWN_COLUMNS:
            return 0, 0
        most = max(1, MAX_WIDE_PROGRAMS // (num_wide * self.layout.num_groups))
        return num_wide, min(MAX_CHUNKS, -(-(longest - OWN_COLUMNS) // WIDE_COLUMNS), most)

    @property
    def widest(self) -> int:
        """Columns of the widest table."""
        return max(self.layout.widths)

    def _make_captured_writes(self) -> CapturedWrites:
        return CapturedLaunch(self, self.place.launcher)

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
        num_reqs = idx_mapping.shape[0]
        batch = Batch(idx_mapping, query_start_loc, positions, num_reqs, num_reqs_padded)
        options = Options(num_computed_tokens if self._has_window else None)
        # Not left to the replay, which may never happen.
        self._zero_dirty_rows(num_reqs_padded)
        writes.publish_step(self, self._staged, batch, options)
        self._staged.clear()


_IN_C: dict[str, Callable[..., object]] = {
    name: getattr(OneLaunch, name)
    for name in (
        "apply_staged_writes",
        "gather_block_tables",
        "compute_slot_mappings",
        "gather_and_compute_slot_mappings",
        "prepare_step",
    )
}
"""Operations that `launcher.Calls` has, as they are here."""
