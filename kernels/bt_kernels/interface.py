"""The interface of every variant: the operations on block tables, and their state.

The symbols in shapes: G groups, R requests in the batch, T tokens in the step.
`docs/block-tables.md` defines the semantics of each operation; `bt_kernels.variants.reference`
states them plainly in code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bt_kernels.layout import TableLayout

JIT = "jit"
"""Launch path: Triton's call, `kernel[grid](...)`, which finds the binary anew each time."""

COMPILED = "compiled"
"""Launch path: the handle of the compiled kernel."""

DIRECT = "direct"
"""Launch path: the driver's `cuLaunchKernel`, by this project's compiled code."""


@dataclass
class TableState:
    """All that the operations read and write, as a snapshot of one moment.

    Args:
        block_tables: per group, the source table `[max_num_reqs, width]`; row = request row.
        input_block_tables: per group, the batch-ordered table of the same shape.
        slot_mappings: `[G, max_num_batched_tokens]` int64.
        num_blocks: `[G, max_num_reqs]`, blocks that each row owns (host truth).
        num_dirty_rows: input rows `[0, num_dirty_rows)` that the last gather filled.

    Tables are int32 in device variants and int64 in the reference; equality is by value.
    """

    block_tables: list[torch.Tensor]
    input_block_tables: list[torch.Tensor]
    slot_mappings: torch.Tensor
    num_blocks: npt.NDArray[np.integer[Any]]
    num_dirty_rows: int


class BlockTableOperations(ABC):
    """The operations, and the state that they work on.

    A variant file defines one subclass with the name `Variant`.

    `features` names a variant's features beyond the plain path, from `bt_kernels.layout.FEATURES`.
    A variant that lacks a feature ignores its option, and must not be used where it is needed.

    `launch_paths` names the launch paths available on the tables' device, and `launch_path` is the
    one in use; it may be set before any call. `capturable` names the methods whose calls may be
    captured into a CUDA graph. A replay runs the device part alone, with the sizes, padding and
    addresses of arguments that the host part determined at the capture. The contents at these
    addresses and the tables may change from replay to replay. Requests are added and removed by
    setting entries of `idx_mapping` to a row or to -1. The host does not see a replay: after
    replaying a gather, set `num_dirty_rows` to the rows that it filled.

    Attributes that may be set at any time:
        redirect_writes_to_null_block: while true, every block id that is staged becomes 0, the
            null block, but counts all the same (warm-up of an engine).
        validate: on every call, check the contents of device memory, too. It makes the host wait
            for the device, so it is for tests; when off it costs nothing.

    Args:
        layout: sizes and options.
        device: the device of the tables.

    Every operation raises `ValueError` before it has changed or launched anything when an argument
    has the wrong dtype, shape or device, is not contiguous, or is too large for the layout; the
    message names argument, value and limit. With `validate` this holds for contents, too: rows of
    `idx_mapping` that do not exist, and a `query_start_loc` that does not begin at 0, falls, or
    ends past `positions`, the slots or `num_tokens_padded`.
    """

    features: frozenset[str] = frozenset()
    launch_path: str = JIT
    launch_paths: tuple[str, ...] = (JIT,)
    capturable: frozenset[str] = frozenset()
    redirect_writes_to_null_block: bool = False
    validate: bool = False

    layout: TableLayout
    device: torch.device
    block_tables: list[torch.Tensor]
    input_block_tables: list[torch.Tensor]
    slot_mappings: torch.Tensor
    num_blocks: npt.NDArray[np.integer[Any]]
    num_dirty_rows: int

    @abstractmethod
    def __init__(self, layout: TableLayout, device: torch.device | str) -> None: ...

    @abstractmethod
    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        """Stage new block ids of one request row (operation 1, host only).

        Args:
            req_index: the row, `0 <= req_index < max_num_reqs`.
            new_block_ids: one list of block ids per group; an empty list stages nothing.
            overwrite: start at column 0 and forget earlier staged ids of the row; else append after
                the row's last block.

        Raises:
            ValueError: when the row does not exist, the number of lists is not G, an id does not
                fit int32, or a row would become wider than its table. Nothing has been changed
                then.
        """

    @abstractmethod
    def apply_staged_writes(self) -> None:
        """Write staged ids into the source tables (operation 2); no launch if there are none."""

    @abstractmethod
    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Copy source rows into batch order (operation 3).

        Args:
            idx_mapping: `[R]` int32 or int64, batch index → request row, on the device; -1 for a
                dummy request, which owns no blocks: its row is zeroed whole.
            num_reqs_padded: rows that the caller will read, `R <= num_reqs_padded`; rows from R on
                are zeroed whole, and so are rows that an earlier, larger batch filled. Columns of
                a live row from its number of blocks on keep their contents.
            out: per group, an int32 tensor `[num_reqs_padded or more, width]` that is written in
                place of the input table. Rows from `num_reqs_padded` on are then left alone. There
                may be more requests than `max_num_reqs`, up to 32,767.
            out_ptrs: `[G]` uint64 or int64 on the device, the addresses of `out`. Without it they
                are copied from the host in each call, which cannot be captured.
            num_computed_tokens: `[max_num_reqs]` int32 or longer, on the device, by request row:
                tokens computed before the step. With it, the columns of a group with a sliding
                window that lie before the window become 0: columns of `[0, num_blocks)` before
                `max(num_computed_tokens[row] - reach, 0) // block_size`.

        Returns:
            Per group, a view `[num_reqs_padded, width]` of the input table, or of `out`.
        """

    @abstractmethod
    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Turn positions into cache slots, from the source tables (operation 4).

        Args:
            idx_mapping: as in `gather_block_tables`; all slots of a dummy request are PAD.
            query_start_loc: `[R + 1]` int32 or longer, first token of each request; the last is T.
            positions: `[T]` or longer, int64, the position of each token in its sequence.
            num_tokens_padded: length of the returned view, `T <= num_tokens_padded`.
            out: int64 `[G, num_tokens_padded or more]`, with contiguous elements in a row, that is
                written, and padded to its end, in place of `slot_mappings`. There may be more
                requests than `max_num_reqs`, up to 32,767.

        Returns:
            A view `[G, num_tokens_padded]` of `slot_mappings`, or of `out`, which is `PAD_SLOT_ID`
            from T to the end of the buffer. `PAD_SLOT_ID` also marks a position outside its row's
            table, every token of a group whose slot mapping is not enabled, and each token that
            another rank holds.
        """

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
        """Do operations 3 and 4 together (operation 5), with their arguments and results.

        `slots_out` is the `out` of operation 4.
        """
        block_tables = self.gather_block_tables(
            idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens
        )
        slot_mappings = self.compute_slot_mappings(
            idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out
        )
        return block_tables, slot_mappings

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
        """Do the whole step: operations 2, 3 and 4 (operation 6); arguments as in operation 5."""
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

    @abstractmethod
    def get_dummy_block_tables(self, num_reqs: int) -> tuple[torch.Tensor, ...]:
        """Zero input rows for a run without requests, at the persistent addresses.

        Args:
            num_reqs: rows that the caller will read, and may fill. They are zeroed whole, and so
                are all rows that an earlier batch filled.

        Returns:
            Per group, a view `[num_reqs, width]` of the input table.
        """

    @abstractmethod
    def get_dummy_slot_mappings(self, num_tokens: int) -> torch.Tensor:
        """Fill all of `slot_mappings` with PAD, and return its view `[G, num_tokens]`."""

    def snapshot(self) -> TableState:
        """Return a copy of the state, on the tables' device. Staged writes are not in it."""
        return TableState(
            [table.clone() for table in self.block_tables],
            [table.clone() for table in self.input_block_tables],
            self.slot_mappings.clone(),
            np.array(self.num_blocks),
            self.num_dirty_rows,
        )

    @abstractmethod
    def restore(self, state: TableState) -> None:
        """Restore a snapshot in place (addresses stay), and forget staged writes.

        The snapshot may be of other tables with the same layout.
        """
