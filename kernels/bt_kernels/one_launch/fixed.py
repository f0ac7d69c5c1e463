"""A launch whose grid and arguments never change, as a CUDA graph needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from bt_kernels import launches
from bt_kernels.device_code import (
    MARKED,
    Features,
    one_launch_captured_kernel,
)
from bt_kernels.one_launch.shapes import (
    ADDRESS_BITS,
    FIXED,
    FIXED_SPANS,
    HEADER_FIELDS,
    MANY,
    MAX_CHUNKS,
    MAX_PROGRAMS,
    MAX_WIDE_PROGRAMS,
    OPTION_FIELDS,
    OWN_COLUMNS,
    PROGRAMS_INTERPRETED,
    WIDE_COLUMNS,
    WORDS,
    many_rows,
    pads_for,
)
from bt_kernels.one_launch.steps import Batch, Options, Steps

if TYPE_CHECKING:
    from bt_kernels.native import Launcher


class FixedLaunch:
    """The launch of a step whose grid and arguments never change: the rest is in headers.

    Args:
        tables: the tables of the steps.
        launcher: the compiled module of that name; `None`: headers are written by numpy.
        applied: int32 that receives the number of the step; `None` if not needed.
    """

    def __init__(
        self, tables: Steps, launcher: Launcher | None, applied: torch.Tensor | None = None
    ) -> None:
        layout = tables.layout
        num_rows = layout.num_groups * layout.max_num_reqs
        self._shape = MANY if num_rows > many_rows() else FIXED
        num_tiles = -(-layout.max_num_reqs // self._shape.requests)
        num_pads = pads_for(layout.max_num_batched_tokens)
        # One for each tile and padding of any batch. They take other parts in turn, since more
        # programs would only wait for each other's headers.
        most = MAX_PROGRAMS if launches.COMPILES else PROGRAMS_INTERPRETED
        self.num_programs = min(most, layout.num_groups * (num_tiles + num_pads))
        # One at least: slots of a caller may be for more tokens than the layout has.
        num_spans = self._shape.spans(layout.max_num_batched_tokens)
        self._num_spans = max(1, min(FIXED_SPANS, num_spans))
        self.body = self.num_programs * (HEADER_FIELDS + OPTION_FIELDS) * WORDS  # marks begin there
        self._num_groups = layout.num_groups
        self._sharded = tables.sharded
        self._launcher = launcher
        self._applied = applied

    def launch(self, tables: launches.Tables, staging: torch.Tensor, *, has_options: bool) -> None:
        """Launch the kernel of whatever step the headers in `staging` describe when it runs."""
        tables.launch(
            one_launch_captured_kernel,
            (self.num_programs, 1, 1),
            (
                *(tables.descriptors, staging, self._applied),
                *(tables.layout.num_groups, tables.layout.max_num_reqs),
                *(tables.layout.max_num_batched_tokens, self._num_spans),
            ),
            (self.num_programs, self._shape.sizes, self._features(has_options)),
            (self._applied,),
            self._shape.num_warps,
        )

    def _features(self, has_options: bool) -> Features:
        return Features(
            where=MARKED.value,
            gathers=True,
            maps=True,
            ids=True,
            indexed=False,
            groups=0,  # these three are for launches that carry staged writes
            bitmap=0,
            payload=0,
            options=has_options,
            sharded=self._sharded,
            aligned=False,  # tables may be replaced after a capture
        )

    def write(
        self,
        view: memoryview,
        tables: Steps,
        step: int,
        num_records: int,
        batch: Batch,
        longest: int,
        options: Options,
    ) -> tuple[int, ...]:
        """Write the headers, and the options if there are any; return the words of a header.

        Args:
            view: the buffer; they are written at its start.
            tables: the tables of the step.
            step: its number, or 0 where nothing is staged.
            num_records: number of staged records.
            batch: batch of the step.
            longest: columns of the longest row.
            options: options of the step.
        """
        slots = tables.slot_mappings if options.slots is None else options.slots
        num_chunks, num_pads = self._num_chunks(batch.num_rows, longest), pads_for(slots.shape[1])
        is_wide = batch.idx_mapping.itemsize == 8
        header = (
            batch.num_reqs << ADDRESS_BITS | _address(batch.idx_mapping),
            batch.num_rows << ADDRESS_BITS | _address(batch.query_start_loc),
            (num_chunks << 8 | num_pads) << ADDRESS_BITS | _address(batch.positions),
            step << 32 | num_records << 1 | is_wide,
        )
        self._repeat(view, 0, header)
        if options:
            self._repeat(view, self.num_programs * HEADER_FIELDS * WORDS, options.words(tables))
        return header

    def _num_chunks(self, num_rows: int, longest: int) -> int:
        """Return the number of programs that share the columns of a long row."""
        if longest <= OWN_COLUMNS or not num_rows:
            return 0
        most = max(1, MAX_WIDE_PROGRAMS // (num_rows * self._num_groups))
        return min(MAX_CHUNKS, -(-(longest - OWN_COLUMNS) // WIDE_COLUMNS), most)

    def write_records_only(self, view: memoryview, step: int, num_records: int) -> None:
        """Write headers of a step that applies staged writes, and has no batch."""
        self.write_header(view, (0, 0, 0, step << 32 | num_records << 1))

    def write_header(self, view: memoryview, words: tuple[int, ...]) -> None:
        """Write the words of a header for each program."""
        self._repeat(view, 0, words)

    def _repeat(self, view: memoryview, first: int, words: tuple[int, ...]) -> None:
        """Write the same words for each program, from an element on."""
        if self._launcher is not None:
            self._launcher.repeat(view, first, self.num_programs, words)
            return
        size = len(words)
        found = np.frombuffer(view, np.int64, self.num_programs * size, first * view.itemsize)
        found.reshape(self.num_programs, size)[:] = words


def _address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor.

    Raises:
        ValueError: if the address does not fit into a header.
    """
    address = tensor.data_ptr()
    if address >> ADDRESS_BITS:
        raise ValueError(f"a tensor is at {address:#x}; expected an address of {ADDRESS_BITS} bits")
    return address
