"""A workload: tables of a layout, and the steps to run on them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from bt_bench.protocol import Operation, Traffic
from bt_bench.protocol import Workload as CommonWorkload
from bt_bench.suites.block_tables.workloads.steps import Append, Step
from bt_bench.suites.block_tables.workloads.traffic import traffic_of
from bt_kernels.layout import CUSTOM_OUTPUTS, DUMMY_REQUESTS, SLIDING_WINDOW, TableLayout


@dataclass(frozen=True)
class Workload(CommonWorkload):
    """A window of steps, and the appends that bring fresh tables to the state before it.

    Args:
        layout: the sizes and options of the tables.
        idx_mapping_dtype: dtype that the engine uses for `idx_mapping`.
        setup: appends that build the state before the first step.
        steps: the window, in order; state is carried from step to step.
        custom_outputs: gather and slots write into buffers of the caller, in every step.
        large: see the base class.
        remarks: see the base class.
    """

    layout: TableLayout
    idx_mapping_dtype: Literal["int32", "int64"]
    setup: tuple[Append, ...]
    steps: tuple[Step, ...]
    custom_outputs: bool = False
    large: bool = False
    remarks: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def features(self) -> frozenset[str]:
        """Return the names in `bt_kernels.layout.FEATURES` that a variant needs to run this."""
        features = set(self.layout.features)
        if all(step.num_computed_tokens is None for step in self.steps):
            features.discard(SLIDING_WINDOW)
        if any((step.idx_mapping < 0).any() for step in self.steps):
            features.add(DUMMY_REQUESTS)
        if self.custom_outputs:
            features.add(CUSTOM_OUTPUTS)
        return frozenset(features)

    def sizes(self) -> dict[str, list[int]]:
        """Return the requests, tokens, and written rows of each step."""
        return {
            "num_reqs": [step.num_reqs for step in self.steps],
            "num_tokens": [step.num_tokens for step in self.steps],
            "num_rows_written": [step.num_rows_written for step in self.steps],
        }

    def traffic(self, operation: Operation) -> list[Traffic] | None:
        """See the base class."""
        return self._traffic[operation]

    @cached_property
    def _traffic(self) -> dict[str, list[Traffic]]:
        index_bytes = np.dtype(self.idx_mapping_dtype).itemsize
        return traffic_of(self.layout, index_bytes, self.setup, self.steps)

    def digest(self) -> str:
        """Return the SHA-256 over every size, option and array: equal digests are equal workloads.

        Options at their default add nothing to it: a plain workload keeps the digest that it has in
        results from before there were options.
        """
        state = hashlib.sha256()
        state.update(f"({_sizes(self.layout)}, {self.idx_mapping_dtype!r})".encode())
        for option in _options(self.layout):
            state.update(repr(option).encode())
        if self.custom_outputs:
            state.update(CUSTOM_OUTPUTS.encode())
        _update_with_appends(state, self.setup)
        for step in self.steps:
            _update_with_appends(state, step.appends)
            state.update(repr((step.num_reqs_padded, step.num_tokens_padded)).encode())
            for array in _arrays(step):
                state.update(repr((array.dtype.str, array.shape)).encode())
                state.update(np.ascontiguousarray(array).tobytes())
        return state.hexdigest()


def _arrays(step: Step) -> Iterator[npt.NDArray[np.integer]]:
    yield from (step.idx_mapping, step.query_start_loc, step.positions)
    if step.num_computed_tokens is not None:
        yield step.num_computed_tokens


def _sizes(layout: TableLayout) -> str:
    """Return the sizes of a layout, in the form of its `repr` from before it had options."""
    sizes = ("block_sizes", "widths", "max_num_reqs", "max_num_batched_tokens")
    return f"TableLayout({', '.join(f'{name}={getattr(layout, name)!r}' for name in sizes)})"


def _options(layout: TableLayout) -> Iterator[tuple[object, ...]]:
    """Yield the options that have an effect, each with its name and values."""
    if not all(layout.slot_mapping_enabled):
        yield "slot_mapping_enabled", layout.slot_mapping_enabled
    if any(layout.reaches):
        yield "sliding_window_reach", layout.reaches
    if layout.cp_size > 1:
        yield "cp", layout.cp_sizes, layout.cp_rank, layout.cp_interleave


def _update_with_appends(state: hashlib._Hash, appends: Iterable[Append]) -> None:
    for append in appends:
        lengths = [len(ids) for ids in append.block_ids]
        state.update(repr((append.row, append.overwrite, lengths)).encode())
        for ids in append.block_ids:
            state.update(np.asarray(ids, dtype=np.int64).tobytes())
    state.update(b"end")
