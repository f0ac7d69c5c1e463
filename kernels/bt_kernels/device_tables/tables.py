"""Host code that all device variants share; a variant chooses the launches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from operator import index
from types import BuiltinMethodType

import torch

from bt_kernels import launches
from bt_kernels.device_tables import arguments
from bt_kernels.device_tables.captured import CapturedStep, CapturedWrites
from bt_kernels.device_tables.checked import CheckedState
from bt_kernels.device_tables.state import RECORD_ROOM
from bt_kernels.device_tables.warming import Inputs, NotedLaunches, run_all
from bt_kernels.layout import FEATURES, PAD_SLOT_ID
from bt_kernels.staging import (
    RECORD_FIELDS,
    AnyStagedWrites,
    StagedWrites,
    refuse_append,
    refuse_append_many,
)


class DeviceBlockTables(CheckedState):
    """Block tables on a device (or on the CPU, under Triton's interpreter).

    This class makes separate launches: one per written group, one to gather, one for slots.
    Variants override `_launch_…` methods or operations, and launch through `self.launch`, with the
    arguments of `bt_kernels.launches.launch_jit`. The constructor takes the arguments of
    `DeviceState`.
    """

    features = FEATURES
    # Without `apply_staged_writes`, whose host part waits for an event and then fills a buffer of
    # the ring; use `capture_step` for that.
    capturable = frozenset(
        {"gather_block_tables", "compute_slot_mappings", "gather_and_compute_slot_mappings"}
    )

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        redirect = self.redirect_writes_to_null_block
        if not self._staged.append(req_index, new_block_ids, overwrite, redirect):
            refuse_append(self.layout, self.num_blocks, req_index, new_block_ids, overwrite)

    def _stage_in(self, staged: AnyStagedWrites) -> None:
        """Stage writes in this object; if it is in C, expose its append methods as this object's.

        An engine calls them for each request or step, and a Python function on the way would take
        as long as the rest, or a third of it. So nothing of a call may depend on the tables.
        """
        super()._stage_in(staged)
        for name, in_c in (
            ("append_block_ids", "append_block_ids"),
            ("append_many", "append_requests"),
        ):
            own = getattr(type(self), name) is getattr(DeviceBlockTables, name)
            if own and hasattr(staged, in_c):
                # Not by `__dict__`: once it has been accessed, an object finds its methods slower.
                setattr(self, name, getattr(staged, in_c))
            elif own and isinstance(getattr(self, name), BuiltinMethodType):  # of an earlier object
                delattr(self, name)
        if not isinstance(staged, StagedWrites):  # in C
            staged.redirects = self._redirects
            staged.refuse = partial(refuse_append, self.layout, self.num_blocks)
            staged.refuse_many = partial(refuse_append_many, self.layout, self.num_blocks)

    def append_many(
        self,
        req_indices: Sequence[int],
        new_block_ids: Sequence[Sequence[Sequence[int]]],
        overwrite: Sequence[bool],
    ) -> None:
        """Stage new block ids of many request rows, in one call (operation 1, host only).

        Equivalent to `append_block_ids` for each request in turn, but stages all or nothing.

        Args:
            req_indices: the rows; a row may occur twice.
            new_block_ids: per request, one list of block ids per group, as a scheduler has them.
            overwrite: per request, as in `append_block_ids`.

        Raises:
            ValueError: as `append_block_ids` for any of them, and when the three are not of one
                length. Nothing has been changed then.
        """
        redirect = self.redirect_writes_to_null_block
        if not self._staged.append_many(req_indices, new_block_ids, overwrite, redirect):
            refuse_append_many(self.layout, self.num_blocks, req_indices, new_block_ids, overwrite)

    def apply_staged_writes(self) -> None:
        if self._captured_writes is not None:
            self._captured_writes.settle(self)
        if self._staged:
            self.refuse_capture("apply_staged_writes")
            self._launch_apply(self._publish())
            self._ring.note_reader()
            # Not earlier: if a launch fails, the next one makes the writes.
            self._staged.clear()

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        num_reqs = arguments.check_mapping(
            self.layout, self.device, idx_mapping, wide=out is not None
        )
        arguments.check_rows(self.layout, num_reqs, num_reqs_padded, wide=out is not None)
        window, ptrs = self._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        if self.validate and not self.place.is_capturing():
            arguments.check_rows_exist(self.layout, idx_mapping)
        num_rows, dirty = self._rows_to_gather(num_reqs, num_reqs_padded, out)
        if num_rows:
            self._launch_gather(idx_mapping, num_rows, window, ptrs)
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
        num_reqs = arguments.check_mapping(
            self.layout, self.device, idx_mapping, wide=out is not None
        )
        views = self._check_slots(
            num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, out
        )
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
        # Errors of the tokens must be found before anything is gathered.
        out_ptrs = self._check_step(
            *(idx_mapping, query_start_loc, positions, num_reqs_padded, num_tokens_padded),
            *(out, out_ptrs, num_computed_tokens, slots_out),
        )
        return super().gather_and_compute_slot_mappings(
            idx_mapping,
            query_start_loc,
            positions,
            num_reqs_padded,
            num_tokens_padded,
            out=out,
            out_ptrs=out_ptrs,
            num_computed_tokens=num_computed_tokens,
            slots_out=slots_out,
        )

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
        # Errors of the batch must be found before anything is applied.
        out_ptrs = self._check_step(
            *(idx_mapping, query_start_loc, positions, num_reqs_padded, num_tokens_padded),
            *(out, out_ptrs, num_computed_tokens, slots_out),
        )
        self.apply_staged_writes()
        return self.gather_and_compute_slot_mappings(
            idx_mapping,
            query_start_loc,
            positions,
            num_reqs_padded,
            num_tokens_padded,
            out=out,
            out_ptrs=out_ptrs,
            num_computed_tokens=num_computed_tokens,
            slots_out=slots_out,
        )

    def get_dummy_block_tables(self, num_reqs: int) -> tuple[torch.Tensor, ...]:
        arguments.check_size("num_reqs", num_reqs, self.layout.max_num_reqs, "max_num_reqs")
        num_rows, dirty = self._rows_to_gather(0, num_reqs, None)
        if num_rows:
            self._launch_gather(self._no_requests, num_rows, None, None)
        # The caller may fill the rows.
        self.num_dirty_rows = max(num_reqs, dirty)
        return self._views_of_tables(num_reqs)

    def get_dummy_slot_mappings(self, num_tokens: int) -> torch.Tensor:
        limit = self.layout.max_num_batched_tokens
        arguments.check_size("num_tokens", num_tokens, limit, "max_num_batched_tokens")
        with launches.written():
            self.slot_mappings.fill_(PAD_SLOT_ID)
        return self._views_of_slots(num_tokens)

    def capture_step(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        *,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> CapturedStep:
        """Enqueue a whole step whose replays apply the writes that `CapturedStep.publish` provides.

        Call it while a CUDA graph is captured, and once before, to load the kernels. The arguments
        are the same as in `prepare_step`. Their addresses must not change, but contents may change
        from replay to replay: requests leave and join as entries of `idx_mapping` turn to -1 and
        back, with `query_start_loc` repeating the last token for them.

        Raises:
            ValueError: as `prepare_step`, and when its first call is made during a capture.
        """
        self._check_step(
            *(idx_mapping, query_start_loc, positions, num_reqs_padded, num_tokens_padded),
            *(None, None, num_computed_tokens, None),
        )
        # Headers shift it to bits that numpy's integers may not have.
        num_reqs_padded = index(num_reqs_padded)
        if self._captured_writes is None:
            if self.place.is_capturing():
                raise ValueError(
                    "capture_step was called for the first time while a graph is captured; call it "
                    "once before, so that its buffer exists and its kernels are loaded"
                )
            self._captured_writes = self._make_captured_writes()
        batch = (idx_mapping, query_start_loc, positions)
        publish = partial(self._publish_for_replay, *batch, num_reqs_padded, num_computed_tokens)
        if not self.place.is_capturing():
            publish()
        block_tables, slot_mappings = self._launch_captured(
            *batch, num_reqs_padded, num_tokens_padded, num_computed_tokens
        )
        return CapturedStep(block_tables, slot_mappings, publish)

    def warmup(self) -> float:
        """Compile and load all kernels that the layout can need, on the current launch path.

        If an engine calls it before it serves, no step compiles: for any sizes, options, dtypes and
        writes, and for captured steps. Kernels are compiled in parallel as far as Triton allows,
        and found in its cache if they were compiled before. Nothing is launched, and no table
        changes.

        Returns:
            The seconds it took; next to none where kernels are interpreted.

        Raises:
            ValueError: during a capture.
        """
        began = time.perf_counter()
        self.refuse_capture("warmup")
        if launches.COMPILES:
            noted = NotedLaunches(self.layout, self.descriptors, sharded=self.sharded)
            self._note_launches(noted, Inputs(self.layout, self.device))
            loads = [partial(self.launch, *launched) for launched in noted.noted]
            run_all([*self._other_loads(), *loads])
        return time.perf_counter() - began

    def _note_launches(self, noted: NotedLaunches, inputs: Inputs) -> None:
        """Make a launch of each kind that the tables can need, on a stand-in that notes them."""
        staging = self._ring.current
        launches.apply_writes(noted, staging, 0, 1)
        launches.apply_captured(noted, staging)
        for mapping, window, pointers in product(inputs.mappings, inputs.windows, inputs.pointers):
            launches.gather(noted, mapping, 1, window, pointers)
        for mapping, out in product(inputs.mappings, inputs.slots):
            launches.slots(noted, mapping, inputs.starts, inputs.positions, out)

    def _other_loads(self) -> list[Callable[[], object]]:
        """Return functions that load the kernels which `launch` does not launch."""
        return []

    def _make_captured_writes(self) -> CapturedWrites:
        return CapturedWrites(self.num_blocks.size * RECORD_ROOM, self.place)

    def _launch_captured(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        num_computed_tokens: torch.Tensor | None,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Launch the step that replays are to make; return the views that it fills."""
        assert self._captured_writes is not None
        self._captured_writes.launch(self)
        return self.gather_and_compute_slot_mappings(
            idx_mapping,
            query_start_loc,
            positions,
            num_reqs_padded,
            num_tokens_padded,
            num_computed_tokens=num_computed_tokens,
        )

    def _publish_for_replay(
        self,
        _idx_mapping: torch.Tensor,
        _query_start_loc: torch.Tensor,
        _positions: torch.Tensor,
        num_reqs_padded: int,
        _num_computed_tokens: torch.Tensor | None,
    ) -> None:
        """Publish the staged writes for a captured step with these arguments."""
        self.refuse_capture("publish")
        writes = self._captured_writes
        assert writes is not None, "there is a captured step only once there is a buffer for it"
        self._zero_dirty_rows(num_reqs_padded)
        if not writes.has_room(self._staged):
            self.apply_staged_writes()
        writes.publish(self, self._staged)
        self._staged.clear()

    def _zero_dirty_rows(self, num_reqs_padded: int) -> None:
        """Zero dirty rows behind the rows of a replay, whose own rows then count as dirty."""
        writes = self._captured_writes
        assert writes is not None, "as in `_publish_for_replay`"
        dirty = self.num_dirty_rows
        if writes.uncounted:
            dirty = max(dirty, writes.uncounted)
            writes.uncounted = 0
        if dirty > num_reqs_padded:
            with launches.written():
                for table in self.input_block_tables:
                    table[num_reqs_padded:dirty].zero_()
        self.num_dirty_rows = writes.rows = num_reqs_padded

    def _launch_apply(self, records_per_group: list[int]) -> None:
        """Launch the writes that `_publish` laid out: here one launch per written group."""
        first_record = 0
        for num_records in records_per_group:
            if num_records:
                launches.apply_writes(self, self._ring.current, first_record, num_records)
            first_record += num_records

    def _launch_gather(
        self,
        idx_mapping: torch.Tensor,
        num_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out_ptrs: torch.Tensor | None,
    ) -> None:
        """Launch the gather of a batch, and the zeroing of rows after it up to `num_rows`.

        Args:
            idx_mapping: `[R]`.
            num_rows: 1 or more.
            num_computed_tokens: `None` where there is no sliding window.
            out_ptrs: `None` for the input tables.
        """
        launches.gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs)

    def _launch_slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        out: torch.Tensor | None,
    ) -> None:
        """Launch the slots of a batch; `out` is `None` for `slot_mappings`."""
        launches.slots(self, idx_mapping, query_start_loc, positions, out)

    def _publish(self) -> list[int]:
        """Move the staged writes into the next buffer of the ring.

        Returns:
            Records per group; they lie in the buffer in the order of the groups.
        """
        staged = self._staged
        view = self._ring.advance(RECORD_FIELDS * staged.num_records + staged.num_ids)
        return staged.pack(view, 0)

    def _rows_to_gather(
        self, num_reqs: int, num_reqs_padded: int, out: Sequence[torch.Tensor] | None
    ) -> tuple[int, int]:
        """Return the number of input rows to write or zero, and the number dirty afterwards."""
        # Triton would treat integers of numpy differently.
        num_reqs_padded, dirty = index(num_reqs_padded), self._checked_dirty_rows()
        if out is not None:
            return num_reqs_padded, dirty
        num_rows = max(num_reqs_padded, dirty)
        if self.place.is_capturing():
            return num_rows, max(num_reqs, dirty)  # nothing runs during a capture
        if self._captured_writes is not None:
            num_rows = max(num_rows, self._captured_writes.take_uncounted())
        return num_rows, num_reqs
