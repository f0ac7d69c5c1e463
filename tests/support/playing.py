"""Plays a sequence of calls on the reference and on several subjects, and compares every step."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.calls import bind
from bt_bench.suites.block_tables.checking.buffers import (
    addresses_of,
    buffers_of,
    compare_addresses,
    compare_buffers,
    compare_dummies,
    compare_results,
    copies_on,
    poison,
)
from bt_bench.suites.block_tables.inputs import CustomOutputs, StepInputs
from bt_bench.variants.catalogue import load_reference
from bt_bench.worker.checking.interpreter_guard import guarded_memory
from bt_kernels.engines import BlockTables
from bt_kernels.interface import TableState
from bt_kernels.layout import TableLayout
from support.sequences import (
    DUMMY,
    EIGHTHS,
    Action,
    Append,
    Apply,
    Batch,
    Call,
    CallSequence,
    DummySlots,
    DummyTables,
    Finish,
    Grow,
    RefusedAppend,
    Restore,
    Snapshot,
)

CPU = torch.device("cpu")
_SPARE_ROWS, _SPARE_SLOTS = 2, 3  # by which a caller's buffers are longer than what it reads


class EngineTables:
    """`bt_kernels.BlockTables`, made and read by the names that variants have."""

    def __init__(self, layout: TableLayout, device: torch.device) -> None:
        self.engine = BlockTables(
            layout.block_sizes,
            layout.max_num_reqs,
            layout.max_num_batched_tokens,
            layout.widths,
            device,
            layout.cp_size,
            layout.cp_rank,
            layout.cp_interleave,
            layout.slot_mapping_enabled,
            layout.dcp_sharded,
            layout.sliding_window_reach,
        )
        # Engines need neither snapshots nor a choice of launch paths.
        self.variant = self.engine._variant
        self.block_tables = [table.gpu for table in self.engine.block_tables]
        self.num_blocks = self.engine.num_blocks.np

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


def _without_a_row_twice(call: Call) -> Call:
    """A whole step in which a row that comes again is a dummy.

    In shipped `one_launch` each program that gathers such a row writes the ids that are staged for
    it to its table: the same ones, but a race all the same.
    """
    seen: set[int] = set()
    requests = []
    for request in call.batch.requests:
        again = call.operation == ops.STEP and request.row in seen
        requests.append(replace(request, row=DUMMY) if again else request)
        seen.add(request.row)
    return replace(call, batch=replace(call.batch, requests=tuple(requests)))


class _Subject:
    """Tables under test, and what is remembered of them."""

    def __init__(self, name: str, tables: Any) -> None:
        self.name = name
        self.tables = tables
        self.variant = getattr(tables, "variant", tables)
        self.addresses = addresses_of(tables)
        self.saved: TableState = self.variant.snapshot()


class Player:
    """The reference and the subjects, in the state that a sequence has led to.

    Args:
        sequence: what will be played.
        variants: class of each subject by name; it is called with layout and device.
        device: where the subjects live; the reference lives on the CPU.
    """

    def __init__(
        self, sequence: CallSequence, variants: Mapping[str, Any], device: torch.device
    ) -> None:
        self.sequence = sequence
        self.layout = sequence.layout
        self._device = device
        self._rng = np.random.default_rng(sequence.seed)
        self._reference = _Subject("reference", load_reference()(self.layout, "cpu"))
        subjects = [
            _Subject(name, _as_chosen(new, sequence)(self.layout, device))
            for name, new in variants.items()
        ]
        self._all = [self._reference, *subjects]
        for subject in subjects:
            subject.variant.validate = sequence.validate
            if sequence.launch_path in subject.variant.launch_paths:
                subject.variant.launch_path = sequence.launch_path

    def play(self) -> None:
        """Plays the sequence.

        Raises:
            Exception: when a subject is wrong; a note says which, and in what action.
        """
        self._fill_with_garbage()
        for index, action in enumerate((*self.sequence.setup, Apply())):
            self._step(f"setup {index}", action)
        for subject in self._all:
            subject.saved = subject.variant.snapshot()
        for index, action in enumerate(self.sequence.actions):
            self._step(f"action {index}", action)

    def _step(self, where: str, action: Action) -> None:
        """Performs one action on all, the reference first, and compares the others with it."""
        value = int(self._rng.integers(-(2**31), -1))
        ids = self._ids(action)
        expected = None
        for subject in self._all:
            try:
                outputs = self._perform(subject, action, ids, value)
                if expected is None:
                    expected = copies_on(self._device, buffers_of(subject.tables, outputs))
                else:
                    _compare(expected, subject, value, outputs)
            except BaseException as error:
                error.add_note(f"{subject.name}, {where}: {action}")
                raise

    def _guarded(self, *owners: object) -> AbstractContextManager[None]:
        """Keeps interpreted kernels within their memory, and their programs apart."""
        return guarded_memory(*owners) if self._device.type == "cpu" else nullcontext()

    def _perform(
        self, subject: _Subject, action: Action, ids: list[list[int]], value: int
    ) -> CustomOutputs | None:
        """Performs one action; returns the buffers of a caller that it has written."""
        tables = subject.tables
        match action:
            case Append(row=row, overwrite=overwrite):
                owner = getattr(tables, "engine", tables)
                owner.redirect_writes_to_null_block = action.redirected
                tables.append_block_ids(row, ids, overwrite)
                owner.redirect_writes_to_null_block = False
            case Grow(rows=rows):
                _grow(tables, rows, ids, action.together)
            case Finish(row=row):
                tables.append_block_ids(row, ids, True)
            case RefusedAppend(row=row, overwrite=overwrite):
                wrong = self.layout.max_num_reqs if action.why == "no_such_row" else 0
                with pytest.raises(ValueError):  # noqa: PT011 - texts are tested elsewhere
                    tables.append_block_ids(row + wrong, ids, overwrite)
            case Apply():
                with self._guarded(tables):
                    tables.apply_staged_writes()
            case Call():
                return self._call(subject, _without_a_row_twice(action), value)
            case DummyTables(num_reqs=num_reqs):
                poison(tables, value)
                with self._guarded(tables):
                    views = tables.get_dummy_block_tables(num_reqs)
                compare_dummies(views, tables.slot_mappings[:, :0], tables, num_reqs, 0)
            case DummySlots(num_tokens=num_tokens):
                poison(tables, value)
                slots = tables.get_dummy_slot_mappings(num_tokens)
                no_rows = [table[:0] for table in tables.input_block_tables]
                compare_dummies(no_rows, slots, tables, 0, num_tokens)
            case Snapshot():
                subject.saved = subject.variant.snapshot()
            case Restore():
                subject.variant.restore(subject.saved)
        return None

    def _call(self, subject: _Subject, call: Call, value: int) -> CustomOutputs | None:
        device = CPU if subject is self._reference else self._device
        step = self._inputs(call.batch, device)
        poison(subject.tables, value, step.outputs)
        with self._guarded(subject.tables, step.outputs):
            result = bind(subject.tables, call.operation, step)()
        compare_results([(call.operation, result)], subject.tables, step)
        return step.outputs

    def _inputs(self, batch: Batch, device: torch.device) -> StepInputs:
        layout = self.layout
        rows = [request.row for request in batch.requests]
        starts, positions = [0], []
        for request in batch.requests:
            tokens = min(request.tokens, layout.max_num_batched_tokens - starts[-1])
            positions += range(request.first, request.first + tokens)
            starts.append(starts[-1] + tokens)
        garbage = [-7] * batch.spare_elements
        num_reqs = min(len(rows) + batch.spare_rows, layout.max_num_reqs)
        num_tokens = min(starts[-1] + batch.spare_tokens, layout.max_num_batched_tokens)

        def tensor(values: object, dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        return StepInputs(
            appends=(),
            idx_mapping=tensor(rows, getattr(torch, self.sequence.dtype)),
            query_start_loc=tensor(starts + garbage, torch.int32),
            positions=tensor(positions + garbage, torch.int64),
            num_reqs_padded=num_reqs,
            num_tokens_padded=num_tokens,
            num_computed_tokens=(
                None
                if batch.computed is None
                else tensor(_computed(layout, batch.computed), torch.int32)
            ),
            outputs=_outputs(layout, batch, device, num_reqs, num_tokens),
        )

    def _ids(self, action: Action) -> list[list[int]]:
        """Block ids that an action stages, of all that fit int32."""
        if isinstance(action, Append):
            room = self._room(action.row, action.overwrite)
            counts = [
                -(-columns * part // EIGHTHS)
                for columns, part in zip(room, action.eighths, strict=True)
            ]
            return [self._rng.integers(-(2**31), 2**31, count).tolist() for count in counts]
        if isinstance(action, Grow):
            return self._ids_of_rows(action)
        if not isinstance(action, RefusedAppend):
            return [[] for _ in self.layout.widths]
        ids = [[7] for _ in self.layout.widths]
        wrong = {
            "overflow": [7] * (1 + self._room(action.row, action.overwrite)[action.group]),
            "id_too_large": [2**31],
            "id_too_small": [-(2**31) - 1],
        }
        ids[action.group] = wrong.get(action.why, [7])
        return ids[1:] if action.why == "too_few_lists" else ids

    def _ids_of_rows(self, grow: Grow) -> list[list[int]]:
        """For each row in turn, the ids that it gets in each group: one, or none."""
        room = {row: self._room(row, False) for row in grow.rows}
        found = []
        for row in grow.rows:
            for group, chosen in enumerate(grow.groups):
                fits = chosen and room[row][group] > 0
                room[row][group] -= fits
                found.append(self._rng.integers(-(2**31), 2**31, int(fits)).tolist())
        return found

    def _room(self, row: int, overwrite: bool) -> list[int]:
        """Per group, columns that an append to a row may fill."""
        owned = self._reference.tables.num_blocks[:, row] * (not overwrite)
        return [
            width - int(blocks) for width, blocks in zip(self.layout.widths, owned, strict=True)
        ]

    def _fill_with_garbage(self) -> None:
        """What no row owns is neither zero nor the same everywhere."""
        garbage = [
            torch.from_numpy(self._rng.integers(-(2**31), 2**31, tuple(table.shape)))
            for table in self._reference.tables.block_tables
        ]
        for subject in self._all:
            state = subject.variant.snapshot()
            for table, values in zip(state.block_tables, garbage, strict=True):
                table.copy_(values)
            subject.variant.restore(state)


def _as_chosen(new: Any, sequence: CallSequence) -> Any:
    """The class of a subject, with or without helpers in C if it can have them."""
    return (
        type(new.__name__, (new,), {"native": sequence.native}) if hasattr(new, "native") else new
    )


def _grow(tables: Any, rows: tuple[int, ...], ids: list[list[int]], together: bool) -> None:
    """Appends to rows: `ids` has a list for each row and group."""
    num_groups = len(ids) // len(rows)
    lists = [ids[first : first + num_groups] for first in range(0, len(ids), num_groups)]
    if together and hasattr(tables, "append_many"):
        tables.append_many(list(rows), lists, [False] * len(rows))
        return
    for row, of_groups in zip(rows, lists, strict=True):
        tables.append_block_ids(row, of_groups, False)


def _computed(layout: TableLayout, first: int) -> list[int]:
    """Tokens that each row has computed, another number each."""
    return [max(0, first) + 3 * row for row in range(layout.max_num_reqs)]


def _outputs(
    layout: TableLayout, batch: Batch, device: torch.device, num_reqs: int, num_tokens: int
) -> CustomOutputs | None:
    """Buffers of a caller, longer than what it reads."""
    if batch.outputs == "persistent":
        return None
    tables = tuple(
        torch.zeros((num_reqs + _SPARE_ROWS, width), dtype=torch.int32, device=device)
        for width in layout.widths
    )
    addresses = None
    if batch.outputs != "own":
        dtype = torch.int64 if batch.outputs == "own_int64_addresses" else torch.uint64
        values = [table.data_ptr() for table in tables]
        addresses = torch.tensor(values, dtype=dtype, device=device)
    # Columns of a wider buffer, so that its rows do not follow one another.
    shape = (layout.num_groups, num_tokens + 2 * _SPARE_SLOTS)
    slots = torch.zeros(shape, dtype=torch.int64, device=device)[:, : num_tokens + _SPARE_SLOTS]
    return CustomOutputs(tables, addresses, slots)


def _compare(
    expected: Mapping[str, torch.Tensor],
    subject: _Subject,
    value: int,
    outputs: CustomOutputs | None,
) -> None:
    """Compares all buffers, and waits for the device once."""
    found = buffers_of(subject.tables, outputs)
    different = [(found[name].to(b.device) != b).any() for name, b in expected.items()]
    if bool(torch.stack(different).any()):
        compare_buffers(dict(expected), subject.tables, value, outputs)
    compare_addresses(subject.addresses, subject.tables)
