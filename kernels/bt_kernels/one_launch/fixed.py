"""A launch whose grid and arguments never change, as a CUDA graph needs it."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import torch

from bt_kernels import launches
from bt_kernels.device_code import (
    DESCRIPTOR_FIELDS,
    TARGET,
    one_launch_captured_kernel,
)
from bt_kernels.one_launch.shapes import (
    ADDRESS_BITS,
    FIXED,
    FIXED_SPANS,
    HEADER_FIELDS,
    MANY,
    MANY_ROWS,
    MAX_CHUNKS,
    MAX_PROGRAMS,
    MAX_WIDE_PROGRAMS,
    OPTION_FIELDS,
    OWN_COLUMNS,
    PROGRAMS_INTERPRETED,
    WIDE_COLUMNS,
    WORDS,
    pads_for,
)

if TYPE_CHECKING:
    from bt_kernels.one_launch.tables import OneLaunch


@dataclass(frozen=True)
class Options:
    """The options of a step, as passed to kernels; see `device_code.one_launch_kernels`.

    Args:
        num_computed_tokens: `None` where there is no sliding window.
        out_ptrs: `None` for the input tables.
        out: `None` for `slot_mappings`.
    """

    num_computed_tokens: torch.Tensor | None
    out_ptrs: torch.Tensor | None
    out: torch.Tensor | None

    def __bool__(self) -> bool:
        return not (self.num_computed_tokens is None and self.out_ptrs is None and self.out is None)

    def words(self, tables: OneLaunch) -> tuple[int, ...]:
        """The int64 words that a program reads."""
        out = tables.slot_mappings if self.out is None else self.out
        if self.out_ptrs is None:
            descriptors = tables.descriptors
            address = descriptors.data_ptr() + TARGET.value * descriptors.itemsize
            apart = DESCRIPTOR_FIELDS.value
        else:
            address, apart = self.out_ptrs.data_ptr(), 1
        computed = self.num_computed_tokens
        of_tokens = 0 if computed is None else computed.data_ptr()
        return of_tokens, address, out.data_ptr(), apart, out.stride(0), out.shape[1], 0, 0


class FixedLaunch:
    """The launch of a step whose grid and arguments never change: what varies is in headers.

    Args:
        tables: the tables of the steps.
        launcher: the compiled module of that name; `None`: headers are written by numpy.
        applied: int32 that receives the number of the step; `None` if not needed.
    """

    def __init__(
        self, tables: OneLaunch, launcher: ModuleType | None, applied: torch.Tensor | None = None
    ) -> None:
        layout = tables.layout
        num_rows = layout.num_groups * layout.max_num_reqs
        self._shape = MANY if num_rows > MANY_ROWS else FIXED
        num_tiles = -(-layout.max_num_reqs // self._shape.requests)
        num_pads = pads_for(layout.max_num_batched_tokens)
        # One for each tile and padding of any batch. They take other parts in turn, since more
        # programs would only wait for each other's headers.
        most = MAX_PROGRAMS if launches.COMPILES else PROGRAMS_INTERPRETED
        self.num_programs = min(most, layout.num_groups * (num_tiles + num_pads))
        self._num_spans = min(
            FIXED_SPANS, self._shape.spans(layout.max_num_reqs, layout.max_num_batched_tokens)
        )
        self.body = self.num_programs * (HEADER_FIELDS + OPTION_FIELDS) * WORDS  # marks begin there
        self._num_groups = layout.num_groups
        self._constants = (tables.sharded, *self._shape.constants)
        self._launcher = launcher
        self._applied = applied

    def launch(self, tables: OneLaunch, staging: torch.Tensor, has_options: bool) -> None:
        """Launches whatever step the headers in `staging` say when it runs."""
        tables.launch(
            one_launch_captured_kernel,
            (self.num_programs, 1, 1),
            (
                *(tables.descriptors, staging, self._applied),
                *(tables.layout.num_groups, tables.layout.max_num_reqs, self._num_spans),
            ),
            (self.num_programs, has_options, *self._constants),
            (),
            self._shape.num_warps,
        )

    def write(
        self,
        view: memoryview,
        tables: OneLaunch,
        step: int,
        num_records: int,
        batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        num_rows: int,
        longest: int,
        options: Options,
    ) -> None:
        """Writes the headers, and the options if there are any.

        Args:
            view: the buffer; they are written at its start.
            tables: the tables of the step.
            step: its number, or 0 where nothing is staged.
            num_records: number of staged records.
            batch: `idx_mapping`, `query_start_loc` and `positions`.
            num_rows: rows to gather or zero.
            longest: columns of the longest row.
            options: of the step.
        """
        idx_mapping, query_start_loc, positions = batch
        num_reqs = idx_mapping.shape[0]
        out = tables.slot_mappings if options.out is None else options.out
        num_chunks = self._num_chunks(num_rows, longest)
        self._repeat(
            view,
            0,
            (
                num_reqs << ADDRESS_BITS | _address(idx_mapping),
                num_rows << ADDRESS_BITS | _address(query_start_loc),
                (num_chunks << 8 | pads_for(out.shape[1])) << ADDRESS_BITS | _address(positions),
                step << 32 | num_records << 1 | (idx_mapping.itemsize == 8),
            ),
        )
        if options:
            self._repeat(view, self.num_programs * HEADER_FIELDS * WORDS, options.words(tables))

    def _num_chunks(self, num_rows: int, longest: int) -> int:
        """Programs that share the columns of a long row."""
        if longest <= OWN_COLUMNS or not num_rows:
            return 0
        most = max(1, MAX_WIDE_PROGRAMS // (num_rows * self._num_groups))
        return min(MAX_CHUNKS, -(-(longest - OWN_COLUMNS) // WIDE_COLUMNS), most)

    def write_records_only(self, view: memoryview, step: int, num_records: int) -> None:
        """Writes headers of a step that applies what is staged, and has no batch."""
        self._repeat(view, 0, (0, 0, 0, step << 32 | num_records << 1))

    def _repeat(self, view: memoryview, first: int, words: tuple[int, ...]) -> None:
        """Writes the same words for each program, from an element on."""
        if self._launcher is not None:
            self._launcher.repeat(view, first, self.num_programs, words)
            return
        size = len(words)
        found = np.frombuffer(view, np.int64, self.num_programs * size, first * view.itemsize)
        found.reshape(self.num_programs, size)[:] = words


def _address(tensor: torch.Tensor) -> int:
    """Where a tensor begins.

    Raises:
        ValueError: if the address does not fit into a header.
    """
    address = tensor.data_ptr()
    if address >> ADDRESS_BITS:
        raise ValueError(f"a tensor is at {address:#x}; expected an address of {ADDRESS_BITS} bits")
    return address
