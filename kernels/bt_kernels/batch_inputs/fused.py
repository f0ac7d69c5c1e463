"""The preparation of batches in one launch for all inputs, or for a whole step."""

from __future__ import annotations

import importlib
import time
import warnings
from array import array
from collections import Counter
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from bt_kernels import launches
from bt_kernels.batch_inputs.arguments import check_contents, check_sizes, check_words
from bt_kernels.batch_inputs.carried import MOST_REQUESTS, CarriedInputs, NewOutputs
from bt_kernels.batch_inputs.interface import PreparedBatch
from bt_kernels.batch_inputs.staged_copy import StagedCopyInputs
from bt_kernels.device_tables.warming import run_all
from bt_kernels.one_launch import DLPACK_CUDA, MANY, SHAPES, Batch, OneLaunch

if TYPE_CHECKING:
    from bt_kernels.batch_inputs.buffers import InputBuffers, RequestTensors
    from bt_kernels.batch_inputs.layout import InputLayout
    from bt_kernels.device_tables import DeviceBlockTables
    from bt_kernels.layout import TableLayout
    from bt_kernels.native import Launcher
    from bt_kernels.native.launcher import Device, Step

_KEPT_VIEWS = 512  # sizes whose views are kept; those of three tensors take a KiB of host memory


class NewTensors:
    """Makes the outputs of a step that are new, or constants where they are the same in each.

    Args:
        layout: sizes and flags.
        counts: 0, 1, and so on to `max_num_reqs`, int32.
        zeros: as many zeros as requests, int32.
    """

    def __init__(self, layout: InputLayout, counts: torch.Tensor, zeros: torch.Tensor) -> None:
        self._has_bonus = layout.num_new_sampled_tokens == 1
        self.tokens = tokens = torch.arange(layout.max_num_reqs, device=counts.device)
        self.constants = lru_cache(_KEPT_VIEWS)(
            lambda size: (counts[: size + 1], zeros[:size], tokens[:size])
        )
        """Returns the constant outputs of a step of one logit for each of so many requests:
        `cu_num_logits`, `expanded_local_pos`, and `logits_indices` of one token each."""

    def __call__(
        self, num_reqs: int, num_tokens: int, num_logits: int, has_drafts: bool
    ) -> tuple[tuple[torch.Tensor, ...], NewOutputs]:
        """Return tensors in the order of `NEW`, and the addresses of those to write."""
        if has_drafts or not self._has_bonus:
            sizes = num_reqs, num_logits, num_logits, _pairs(num_logits), _pairs(num_reqs + 1)
            mapping, expanded, indices, local_pos, counts = self._split(*sizes)
            local_pos = local_pos.view(torch.int32)[:num_logits]
            counts = counts.view(torch.int32)[: num_reqs + 1]
            tensors = (mapping, expanded, local_pos, counts, indices)
            return tensors, NewOutputs(*(tensor.data_ptr() for tensor in tensors))
        counts, local_pos, indices = self.constants(num_reqs)
        if num_tokens == num_reqs:
            mapping = self.tokens.new_empty(num_reqs)
            new = NewOutputs(mapping.data_ptr())
        else:
            mapping, indices = self._split(num_reqs, num_reqs)
            new = NewOutputs(mapping.data_ptr(), logits_indices=indices.data_ptr())
        return (mapping, mapping, local_pos, counts, indices), new

    def _split(self, *sizes: int) -> tuple[torch.Tensor, ...]:
        """Return new int64 tensors of some sizes in one allocation, at multiples of 16 bytes."""
        parts: list[int] = []
        for size in sizes:
            parts += (size, size % 2)
        return tuple(self.tokens.new_empty(sum(parts)).split_with_sizes(parts)[::2])


class FusedInputs(StagedCopyInputs):
    """One launch for all inputs, and launches of their own for writes, and for tables and slots.

    Where a launch cannot do it, the operations of `StagedCopyInputs` do, with the same results.

    Attributes:
        fallbacks: by reason, how many batches were prepared without the launch.

    Takes the arguments of `BatchInputOperations`, and `tables`: block tables of the layout that
    exist already; `None`: new ones. Where no launch can carry a batch, a warning gives the reason.
    """

    tables: OneLaunch
    tables_type = OneLaunch

    def __init__(
        self,
        table_layout: TableLayout,
        layout: InputLayout,
        requests: RequestTensors,
        device: torch.device | str,
        buffers: InputBuffers | None = None,
        tables: DeviceBlockTables | None = None,
    ) -> None:
        super().__init__(table_layout, layout, requests, device, buffers, tables)
        self.fallbacks: Counter[str] = Counter()
        self._why_not = CarriedInputs.why_not(self.tables, layout)
        self._carried: CarriedInputs | None = None
        if self._why_not is None:
            self._carried = CarriedInputs(self.tables, layout, requests, self.buffers)
        else:
            warnings.warn(f"batches take several launches: {self._why_not}", stacklevel=2)
        self._outputs = NewTensors(layout, self._counts, self._zeros)
        # Without a reference to this object, which would then outlive its last user.
        of = self.buffers
        self._views_of_tokens = lru_cache(_KEPT_VIEWS)(
            lambda size: (of.input_ids[:size], of.positions[:size], of.is_padding[:size])
        )
        self._views_of_requests = lru_cache(_KEPT_VIEWS)(
            lambda size: (of.query_start_loc[: size + 1], of.seq_lens[:size])
        )
        self._beside: Step | None = None
        self._make_quick()

    def use_prefill_len(self, prefill_len: torch.Tensor) -> None:
        super().use_prefill_len(prefill_len)
        if self._carried is not None:
            self._carried.use_prefill_len(prefill_len)

    def _make_quick(self) -> None:
        """Expose operations in C as this object's, where its class has not overridden them.

        They make plain calls, and hand all others to the methods of the class. Tables that are
        replaced have another step in C, and need other operations.
        """
        launcher, step = self.tables.place.launcher, self.tables._quick
        if self._carried is None or launcher is None or step is self._beside:
            return
        self._beside = step
        if step is not None:
            self._call_in_c(launcher, DLPACK_CUDA, self.tables.place.native)

    def _call_in_c(self, launcher: Launcher, device_type: int, device: Device | None) -> None:
        """Expose operations in C for tensors of a device type: tests use the CPU."""
        assert self._carried is not None
        steps = self._carried.make_steps(self.tables, launcher, device_type, device)
        if not steps:
            return
        helpers = (
            PreparedBatch,
            self._outputs.tokens.new_empty,
            self._outputs.constants,
            self._views_of_tokens,
            self._views_of_requests,
            np.dtype(np.int32),
            np.dtype(np.int64),
            _numpy_functions(),
        )
        sizes = array("q", self._carried.sizes)
        calls = launcher.Inputs(self, self.tables, (steps[0], steps[1]), sizes, helpers)
        for name, method in _IN_C.items():
            if getattr(type(self), name) is method:
                setattr(self, name, getattr(calls, name))

    def prepare_inputs(
        self,
        rows: npt.NDArray[np.int64],
        query_lens: npt.NDArray[np.int32],
        prefill_lens: npt.NDArray[np.int32],
        has_prefill: bool,
        num_drafts: npt.NDArray[np.int32] | None,
        num_reqs_padded: int,
        num_tokens_padded: int,
    ) -> PreparedBatch:
        given = (rows, query_lens, prefill_lens, has_prefill, num_drafts)
        self.tables.refuse_capture("prepare_inputs")
        self._make_quick()
        reason = self._unfit(len(rows))
        if reason is None:
            batch, room = self._take(*given, num_reqs_padded, num_tokens_padded)
            assert self._carried is not None
            if self._carried.run_alone(room, len(rows), num_tokens_padded):
                return batch
            reason = "the kernel could not be loaded"
        self.fallbacks[reason] += 1
        return super().prepare_inputs(*given, num_reqs_padded, num_tokens_padded)

    def prepare(
        self,
        rows: npt.NDArray[np.int64],
        query_lens: npt.NDArray[np.int32],
        prefill_lens: npt.NDArray[np.int32],
        has_prefill: bool,
        num_drafts: npt.NDArray[np.int32] | None,
        num_reqs_padded: int,
        num_tokens_padded: int,
    ) -> PreparedBatch:
        sizes = len(rows), int(query_lens.sum())
        check_sizes(self.layout, *sizes, num_reqs_padded, num_tokens_padded)
        self._check(rows, query_lens, prefill_lens, num_drafts)
        self.tables.apply_staged_writes()
        batch = self.prepare_inputs(
            *(rows, query_lens, prefill_lens, has_prefill, num_drafts),
            *(num_reqs_padded, num_tokens_padded),
        )
        block_tables, slot_mappings = self.tables.gather_and_compute_slot_mappings(
            batch.idx_mapping,
            batch.query_start_loc,
            batch.positions,
            num_reqs_padded,
            num_tokens_padded,
            num_computed_tokens=self.requests.num_computed_tokens,
        )
        return batch._replace(block_tables=block_tables, slot_mappings=slot_mappings)

    def warmup(self) -> float:
        """Compile and load all kernels of the tables, and of launches that carry batches.

        If an engine calls it before it serves, no step compiles, unless it is one of `fallbacks`.
        Nothing is launched, and no tensor changes.

        Returns:
            The seconds it took; next to none where kernels are interpreted.

        Raises:
            ValueError: during a capture.
        """
        began = time.perf_counter()
        self.tables.warmup()
        if self._carried is not None and launches.COMPILES:
            binaries = self._carried.binaries(aligned=self.tables.rows_are_aligned)
            run_all([partial(self._carried.load, binary) for binary in binaries])
        return time.perf_counter() - began

    def _unfit(self, num_reqs: int) -> str | None:
        """Return why a batch of so many requests cannot be carried; `None` if it can."""
        if num_reqs > MOST_REQUESTS:
            return f"more than {MOST_REQUESTS} requests"
        return self._why_not

    def _check(
        self,
        rows: npt.NDArray[np.int64],
        query_lens: npt.NDArray[np.int32],
        prefill_lens: npt.NDArray[np.int32],
        num_drafts: npt.NDArray[np.int32] | None,
    ) -> None:
        """Refuse contents that have no meaning, as far as it takes no time without `validate`."""
        check_words(self.layout, rows, query_lens, num_drafts)
        if self.validate:
            check_contents(self.layout, self.requests, rows, query_lens, prefill_lens, num_drafts)

    def _take(
        self,
        rows: npt.NDArray[np.int64],
        query_lens: npt.NDArray[np.int32],
        prefill_lens: npt.NDArray[np.int32],
        has_prefill: bool,
        num_drafts: npt.NDArray[np.int32] | None,
        num_reqs_padded: int,
        num_tokens_padded: int,
    ) -> tuple[PreparedBatch, int]:
        """Check a batch, and make it the one of the next launch.

        Returns:
            The batch, whose tensors the launch fills; and the room that the launch needs.
        """
        num_reqs, layout = len(rows), self.layout
        starts = np.empty(num_reqs_padded + 1, dtype=np.int32)
        num_tokens = int(query_lens.sum())
        check_sizes(layout, num_reqs, num_tokens, num_reqs_padded, num_tokens_padded)
        self._check(rows, query_lens, prefill_lens, num_drafts)
        starts[0] = 0
        np.cumsum(query_lens, out=starts[1 : num_reqs + 1])
        starts[num_reqs + 1 :] = num_tokens
        cu_num_logits, num_drafts_in_all = self._count_logits(num_reqs, num_drafts)
        num_logits = int(cu_num_logits[num_reqs])
        has_drafts = num_drafts is not None
        tensors, addresses = self._outputs(num_reqs, num_tokens, num_logits, has_drafts)
        assert self._carried is not None
        self._carried.addressed = tensors
        room = self._carried.carry(
            rows, starts[: num_reqs + 1], cu_num_logits, num_tokens_padded, has_prefill, addresses
        )
        batch = PreparedBatch._make(
            (
                *tensors,
                *self._views_of_tokens(num_tokens_padded),
                *self._views_of_requests(num_reqs_padded),
                *(starts, cu_num_logits, num_drafts_in_all, (), None),
            )
        )
        return batch, room


class OneLaunchInputs(FusedInputs):
    """One launch for a whole step: staged writes, inputs, tables and slots.

    Has the arguments and attributes of `FusedInputs`.
    """

    def prepare(
        self,
        rows: npt.NDArray[np.int64],
        query_lens: npt.NDArray[np.int32],
        prefill_lens: npt.NDArray[np.int32],
        has_prefill: bool,
        num_drafts: npt.NDArray[np.int32] | None,
        num_reqs_padded: int,
        num_tokens_padded: int,
    ) -> PreparedBatch:
        given = (rows, query_lens, prefill_lens, has_prefill, num_drafts)
        tables = self.tables
        tables.refuse_capture("prepare")
        self._make_quick()
        reason = self._unfit(len(rows))
        if reason is None:
            batch, room = self._take(*given, num_reqs_padded, num_tokens_padded)
            if self._launch_step(batch, room, num_reqs_padded, num_tokens_padded):
                return batch._replace(
                    block_tables=tables._views_of_tables(num_reqs_padded),
                    slot_mappings=tables._views_of_slots(num_tokens_padded),
                )
            reason = "a kernel could not be loaded, or writes cannot be carried"
        counted = self.fallbacks.total()
        result = super().prepare(*given, num_reqs_padded, num_tokens_padded)
        if self.fallbacks.total() == counted:  # or its inputs took several launches, too
            self.fallbacks[reason] += 1
        return result

    def _launch_step(
        self, batch: PreparedBatch, room: int, num_reqs_padded: int, num_tokens_padded: int
    ) -> bool:
        """Launch a step whose batch is taken; return whether that was possible."""
        tables = self.tables
        assert self._carried is not None
        tables._checked_dirty_rows()
        if tables._captured_writes is not None:
            tables._captured_writes.settle(tables)
        num_reqs = len(batch.idx_mapping)
        num_rows, dirty = tables._rows_to_gather(num_reqs, num_reqs_padded, None)
        num_tokens = int(batch.query_start_loc_np[num_reqs])
        # Tiles map all tokens of a step whose requests have few.
        longest = int(np.diff(batch.query_start_loc_np).max())
        has_few = all(longest * MANY.requests <= shape.tokens for shape in SHAPES)
        positions = self.buffers.positions[: 0 if has_few else num_tokens]
        step = Batch(batch.idx_mapping, batch.query_start_loc, positions, num_reqs, num_rows)
        if not self._carried.run(tables, room, step, num_tokens_padded):
            return False
        # Not earlier: if a launch fails, the next one makes the writes.
        tables._staged.clear()
        tables.num_dirty_rows = dirty
        return True


def _numpy_functions() -> Any:
    """Return the capsule of numpy's functions in C."""
    core = "numpy._core" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "numpy.core"
    return importlib.import_module(f"{core}.multiarray")._ARRAY_API


def _pairs(size: int) -> int:
    """Return how many int64 hold so many int32, at least."""
    return (size + 1) // 2


_IN_C = {"prepare_inputs": FusedInputs.prepare_inputs, "prepare": OneLaunchInputs.prepare}
"""Operations that `launcher.Inputs` has, as they are here."""
