"""A user's file of recorded calls: every operation is checked before anything is made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from bt_bench.base import HEAD_BYTES, refuse_stand_in
from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.workloads.assemble import estimate_bytes
from bt_bench.suites.block_tables.workloads.layouts.engine_file import MAX_GROUP_BYTES
from bt_bench.suites.block_tables.workloads.recorded.batches import Batches
from bt_bench.suites.block_tables.workloads.steps import Int64Array
from bt_kernels.engines.recordings import (
    Append,
    Apply,
    BeginStep,
    Difference,
    DummySlots,
    DummyTables,
    Gather,
    Operation,
    Recording,
    RecordingError,
    Slots,
    Snapshot,
)
from bt_kernels.layout import (
    CUSTOM_OUTPUTS,
    DUMMY_REQUESTS,
    MAX_NUM_BATCHED_TOKENS,
    MAX_NUM_REQS,
    SLIDING_WINDOW,
    TableLayout,
)

_CALLS = (Append, Apply, Gather, Slots, DummyTables, DummySlots)
"""Calls that make a step, even before the first `execute_model`."""


class RecordedFile:
    """A file of recorded calls, read as a stream.

    Args:
        path: the file.

    Attributes:
        layout: the layout of the recorded tables.

    Raises:
        UsageError: if it cannot be read, is something else, or has tables that nobody can build.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not path.is_file():  # opening a FIFO may wait for ever
            raise UsageError(f"{path} is not a regular file; expected a recording")
        try:
            with path.open("rb") as file:
                refuse_stand_in(file.read(HEAD_BYTES), str(path), "a recording")
            self._recording = Recording(path)
        except RecordingError as error:
            raise UsageError(str(error)) from None
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
        header = self._recording.header
        self.source = f"vLLM {header.vllm}" + f" on {header.device_name}" * bool(header.device_name)
        try:
            self.layout = TableLayout(
                header.block_sizes,
                header.max_num_blocks_per_group,
                header.max_num_reqs,
                header.max_num_batched_tokens,
                header.slot_mapping_enabled or (),
                header.sliding_window_reach or (),
                header.cp_size,
                header.cp_rank,
                header.cp_interleave,
                header.dcp_sharded or (),
            )
        except ValueError as error:
            raise UsageError(f"{path}: byte 0: the recorded tables are wrong: {error}") from None
        needed = estimate_bytes(self.layout)
        if needed > MAX_GROUP_BYTES:
            raise UsageError(
                f"{path}: byte 0: the recorded tables take {needed / 2**30:,.0f} GiB; expected at "
                f"most {MAX_GROUP_BYTES >> 30}"
            )

    @property
    def note(self) -> str | None:
        """Return why the end of the file is incomplete, once all was read; `None`: it is whole."""
        return self._recording.note

    def operations(self) -> Iterator[tuple[int, Operation]]:
        """Yield each operation with the number of its step, from 0.

        A step begins with `execute_model`. Calls before the first one are a step of their own.

        Raises:
            UsageError: for a damaged file and an operation that the tables cannot take, naming the
                file and the byte or the step.
        """
        step, has_calls = 0, False
        num_blocks = np.zeros((self.layout.num_groups, self.layout.max_num_reqs), dtype=np.int64)
        try:
            for operation in self._recording.operations():
                step += has_calls and isinstance(operation, BeginStep)
                has_calls |= isinstance(operation, (BeginStep, *_CALLS))
                wrong = _wrong(self.layout, num_blocks, operation)
                if wrong:
                    raise UsageError(
                        f"{self.path}: step {step}: {wrong}. The file is damaged; copy or "
                        "record it anew"
                    )
                yield step, operation
        except RecordingError as error:
            raise UsageError(str(error)) from None
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be read: {error.strerror or error}") from None


@dataclass
class RecordedFacts:
    """Facts of a whole file.

    Args:
        steps: number of steps.
        num_tokens: tokens of each batch: a gather, and the slots for the same requests.
        num_reqs: most requests of a batch.
        features: the features that a variant needs for the calls.
        unknown: by method, calls whose arguments were on the GPU alone.
        others: by method, calls that are in no batch.
        difference: the difference that shadow mode found, if any.
        note: why the end of the file is incomplete; `None`: it is whole.
    """

    steps: int = 0
    num_tokens: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    num_reqs: int = 0
    features: frozenset[str] = frozenset()
    unknown: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    difference: Difference | None = None
    note: str | None = None


def facts_of(path: Path) -> RecordedFacts:
    """Read a whole file, and return its facts; a file that has not changed is read once.

    Raises:
        UsageError: as from `RecordedFile`.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    return _facts_of(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=16)
def _facts_of(path: Path, *_version: int) -> RecordedFacts:
    file = RecordedFile(path)
    facts = RecordedFacts()
    batches = Batches()
    tokens: list[int] = []
    features = set(file.layout.features) - {SLIDING_WINDOW}
    for step, operation in file.operations():
        if isinstance(operation, (BeginStep, *_CALLS)):
            facts.steps = step + 1
        match operation:
            case Gather() | Slots() if not is_known(operation):
                facts.unknown[name_of(operation)] += 1
                continue
            case Gather():
                features |= {CUSTOM_OUTPUTS} if operation.out_rows is not None else set()
                features |= {SLIDING_WINDOW} & file.layout.features if operation.masks else set()
                features |= _dummies_of(operation, file.layout)
            case Slots():
                features |= {CUSTOM_OUTPUTS} if operation.out_columns is not None else set()
                features |= _dummies_of(operation, file.layout)
            case Difference():
                facts.difference = operation
        for batch in batches.of(operation):
            tokens.append(len(batch.positions))
            facts.num_reqs = max(facts.num_reqs, len(batch.rows))
    facts.num_tokens = np.array(tokens, dtype=np.int64)
    facts.features = frozenset(features)
    facts.others = batches.others
    facts.note = file.note
    return facts


def is_known(operation: Gather | Slots) -> bool:
    """Return whether all arguments of a call were on the host, too, and so were recorded."""
    if isinstance(operation, Slots):
        given = operation.rows, operation.starts, operation.positions
        return all(array is not None for array in given)
    return operation.rows is not None and not (operation.masks and operation.computed is None)


def name_of(operation: Gather | Slots) -> str:
    """Return the name of the recorded method."""
    return "gather_block_tables" if isinstance(operation, Gather) else "compute_slot_mappings"


def _dummies_of(operation: Gather | Slots, layout: TableLayout) -> set[str]:
    rows = operation.rows
    assert rows is not None
    is_dummy = (rows < 0) | (rows >= layout.max_num_reqs)
    return {DUMMY_REQUESTS} if is_dummy.any() else set()


def _wrong(layout: TableLayout, num_blocks: Int64Array, operation: Operation) -> str:
    """Return the fault of an operation, or an empty text; count its blocks.

    Args:
        layout: layout of the tables.
        num_blocks: `[G, max_num_reqs]`, blocks of each row so far.
        operation: the next operation.
    """
    match operation:
        case Append():
            return _wrong_append(layout, num_blocks, operation)
        case Gather():
            most = layout.max_num_reqs if operation.out_rows is None else operation.out_rows
            most = min(most, MAX_NUM_REQS)
            if not operation.num_reqs <= operation.num_reqs_padded <= most:
                return (
                    f"gather_block_tables of {operation.num_reqs} requests has num_reqs_padded "
                    f"{operation.num_reqs_padded}; expected {operation.num_reqs} to {most}"
                )
        case Slots():
            return _wrong_slots(layout, operation)
        case DummyTables():
            if not 0 <= operation.num_reqs <= layout.max_num_reqs:
                return (
                    f"get_dummy_block_tables has num_reqs {operation.num_reqs}; expected 0 to "
                    f"{layout.max_num_reqs}"
                )
        case DummySlots():
            if not 0 <= operation.num_tokens <= layout.max_num_batched_tokens:
                return (
                    f"get_dummy_slot_mappings has num_tokens {operation.num_tokens}; expected 0 to "
                    f"{layout.max_num_batched_tokens}"
                )
        case Snapshot():
            num_blocks[:] = operation.num_blocks
            widths = np.array(layout.widths, dtype=np.int64).reshape(-1, 1)
            if ((num_blocks < 0) | (num_blocks > widths)).any():
                return "a snapshot has rows with more blocks than columns"
    return ""


def _wrong_append(layout: TableLayout, num_blocks: Int64Array, append: Append) -> str:
    row = append.row
    if not 0 <= row < layout.max_num_reqs:
        return f"append_block_ids has row {row}; expected 0 to {layout.max_num_reqs - 1}"
    if append.overwrite:
        num_blocks[:, row] = 0
    num_blocks[:, row] += np.array([len(ids) for ids in append.ids], dtype=np.int64)
    for group, width in enumerate(layout.widths):
        if num_blocks[group, row] > width:
            return (
                f"append_block_ids makes row {row} of group {group} {num_blocks[group, row]} "
                f"blocks long; expected at most {width}, its columns"
            )
    return ""


def _wrong_slots(layout: TableLayout, slots: Slots) -> str:
    columns = slots.out_columns
    most = layout.max_num_batched_tokens if columns is None else columns
    tokens = slots.num_tokens_padded
    if not 0 <= tokens <= min(most, MAX_NUM_BATCHED_TOKENS):
        return f"compute_slot_mappings has num_tokens_padded {tokens}; expected 0 to {most}"
    if slots.rows is not None and len(slots.rows) != slots.num_reqs:
        return f"compute_slot_mappings has {len(slots.rows)} rows; expected {slots.num_reqs}"
    starts = slots.starts
    if starts is None:
        return ""
    if starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] > tokens:
        return (
            "compute_slot_mappings has a query_start_loc that does not rise from 0 to at most "
            f"num_tokens_padded, {tokens}"
        )
    return ""
