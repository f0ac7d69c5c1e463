"""Repro files: the calls that led to a difference in shadow mode, and the contents before them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bt_kernels.engines.plugin import settings
from bt_kernels.engines.plugin.call_files import CallFile
from bt_kernels.engines.plugin.headers import repro_header
from bt_kernels.engines.plugin.messages import describe
from bt_kernels.engines.plugin.noting import Notes
from bt_kernels.engines.plugin.snapshots import num_dirty_rows
from bt_kernels.engines.recordings import Difference, Frame, Snapshot
from bt_kernels.layout import TableLayout

_NAME = "bt-kernels-repro.bin"


class Repro:
    """The latest contents of vLLM's tables, and the calls on them since.

    Nothing here raises: the file is left out then, and `write` returns the reason.

    Args:
        layout: of the tables.
        device: of the tables.
        may_wait: returns whether the GPU may be waited for now.
    """

    def __init__(
        self, layout: TableLayout, device: torch.device, may_wait: Callable[[], bool]
    ) -> None:
        self.notes, self._may_wait = Notes(may_wait), may_wait
        self._layout, self._device = layout, device
        self._copies: list[torch.Tensor] = []
        self._error: Exception | None = None

    def begin(self, tables: Any) -> None:
        """Copy the contents, and forget the calls before; later if something is staged."""
        frame = self.notes.frame
        if self._error is not None or frame.staged or not self._may_wait():
            return
        if self._copies and not frame:
            return  # nothing was called since
        try:
            self._copy(tables)
            frame.take()
            if getattr(tables, "redirect_writes_to_null_block", False):  # not in older releases
                frame.redirect(True)
        except Exception as error:
            self.fail(tables, error)

    def fail(self, tables: Any, error: Exception) -> None:
        """Write no file, for this reason; the memory of copies is free again."""
        self._error = self._error or error
        self._copies = []

    def write(self, difference: Difference) -> str:
        """Write the file; return a sentence about it."""
        try:
            if self._error is not None:
                raise self._error
            folder = settings.repro_folder() or Path(tempfile.gettempdir())
            header = repro_header(self._layout, self._device)
            frame, calls = Frame(), self.notes.frame
            frame.snapshot(self._snapshot())
            calls.difference(difference)
            file = CallFile(folder / _NAME, header, max_bytes=1)
            file.write(frame.take())
            file.write(calls.take())
            file.close()
        except Exception as error:
            return f"No repro file was written ({describe(error)})"
        return f"`bt-bench replay {file.path}` makes the calls of this step again"

    def _copy(self, tables: Any) -> None:
        sources = [table.gpu for table in tables.block_tables]
        sources += tables.input_block_tables
        with torch.inference_mode():
            self._copies = self._copies or [torch.empty_like(source) for source in sources]
            for copy, source in zip(self._copies, sources, strict=True):
                copy.copy_(source)
        self._num_blocks, self._dirty = tables.num_blocks.np.copy(), num_dirty_rows(tables)

    def _snapshot(self) -> Snapshot:
        copies = [copy.cpu().numpy() for copy in self._copies]
        groups = len(copies) // 2
        return Snapshot(
            self._num_blocks, tuple(copies[:groups]), tuple(copies[groups:]), self._dirty
        )
