"""The steps of a workload: the exact calls that an engine would make.

They are plain host data (numpy and lists): they need neither torch nor a device, and the same
workload can drive every variant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
    """One scheduling step: writes to stage, then rows to gather and slots to map.

    Args:
        appends: staged before the step, in this order.
        idx_mapping: `[R]` int64, batch index → request row, or -1 for a dummy request.
        query_start_loc: `[R + 1]` int32, first token of each request; the last is T.
        positions: `[T]` int64, position of each token in its sequence.
        num_reqs_padded: rows that the engine reads (R, or the size of its captured graph).
        num_tokens_padded: slots that the engine reads, likewise.
        num_computed_tokens: `[max_num_reqs]` int32 by request row, tokens computed before the
            step, for the sliding window; `None` where the engine does not pass it.
    """

    appends: tuple[Append, ...]
    idx_mapping: Int64Array
    query_start_loc: Int32Array
    positions: Int64Array
    num_reqs_padded: int
    num_tokens_padded: int
    num_computed_tokens: Int32Array | None = None

    @property
    def num_reqs(self) -> int:
        """Return R, the requests in the batch, the dummy ones among them."""
        return len(self.idx_mapping)

    @property
    def num_tokens(self) -> int:
        """Return T, the tokens in the step, including dummy requests' tokens."""
        return len(self.positions)

    @property
    def num_rows_written(self) -> int:
        """Return the number of rows for which at least one block id is staged."""
        return len({append.row for append in self.appends if any(map(len, append.block_ids))})
