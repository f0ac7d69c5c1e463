"""The nouns of a workload: the exact calls that an engine would make, step after step.

Plain host data (numpy and lists), so that it needs neither torch nor a device, and the same
workload can drive every variant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from bt_kernels.layout import TableLayout

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Append:
    """One call of `append_block_ids`.

    Args:
        row: request row.
        block_ids: per group, the new block ids of the row; may be empty.
        overwrite: a new request takes the row, starting at column 0.
    """

    row: int
    block_ids: tuple[list[int], ...]
    overwrite: bool


@dataclass(frozen=True)
class Step:
    """One scheduling step: what is staged, then what is gathered and mapped.

    Args:
        appends: staged before the step, in this order.
        idx_mapping: `[R]` int64, batch index → request row.
        query_start_loc: `[R + 1]` int32, first token of each request; the last is T.
        positions: `[T]` int64, position of each token in its sequence.
        num_reqs_padded: rows that the engine reads (R, or the size of its captured graph).
        num_tokens_padded: slots that the engine reads, likewise.
    """

    appends: tuple[Append, ...]
    idx_mapping: Int64Array
    query_start_loc: Int32Array
    positions: Int64Array
    num_reqs_padded: int
    num_tokens_padded: int

    @property
    def num_reqs(self) -> int:
        """R, requests in the batch."""
        return len(self.idx_mapping)

    @property
    def num_tokens(self) -> int:
        """T, tokens in the step."""
        return len(self.positions)

    @property
    def num_rows_written(self) -> int:
        """Rows for which at least one block id is staged."""
        return len({append.row for append in self.appends if any(map(len, append.block_ids))})


@dataclass(frozen=True)
class Workload:
    """A window of steps, and the calls that bring fresh tables to the state before its first.

    Args:
        layout: the sizes of the tables.
        idx_mapping_dtype: dtype that the engine uses for `idx_mapping`.
        setup: appends that build the state before the first step.
        steps: the window, in order; state is carried from step to step.
    """

    layout: TableLayout
    idx_mapping_dtype: Literal["int32", "int64"]
    setup: tuple[Append, ...]
    steps: tuple[Step, ...]

    def digest(self) -> str:
        """SHA-256 over every size and array: equal digests are equal workloads."""
        state = hashlib.sha256()
        state.update(repr((self.layout, self.idx_mapping_dtype)).encode())
        _update_with_appends(state, self.setup)
        for step in self.steps:
            _update_with_appends(state, step.appends)
            state.update(repr((step.num_reqs_padded, step.num_tokens_padded)).encode())
            for array in (step.idx_mapping, step.query_start_loc, step.positions):
                state.update(repr((array.dtype.str, array.shape)).encode())
                state.update(np.ascontiguousarray(array).tobytes())
        return state.hexdigest()


def _update_with_appends(state: hashlib._Hash, appends: Iterable[Append]) -> None:
    for append in appends:
        lengths = [len(ids) for ids in append.block_ids]
        state.update(repr((append.row, append.overwrite, lengths)).encode())
        for ids in append.block_ids:
            state.update(np.asarray(ids, dtype=np.int64).tobytes())
    state.update(b"end")
