"""Copies of source tables on the host, made without waiting for the GPU."""

from __future__ import annotations

from typing import Any

import torch

from bt_kernels.engines.recordings import Snapshot


class SnapshotCopies:
    """Pinned memory for copies of the source tables of one object.

    Args:
        tables: block tables of vLLM's class or ours.
    """

    def __init__(self, tables: Any) -> None:
        sources = [table.gpu for table in tables.block_tables]
        self._on_gpu = sources[0].is_cuda
        self._copies = [
            torch.empty(source.shape, dtype=source.dtype, pin_memory=self._on_gpu)
            for source in sources
        ]
        self._copied: Any = torch.cuda.Event() if self._on_gpu else None  # type: ignore[no-untyped-call]

    def can_begin(self) -> bool:
        """Return whether copies can be made now: no CUDA graph is being captured."""
        return not (self._on_gpu and torch.cuda.is_current_stream_capturing())

    def begin(self, tables: Any) -> None:
        """Copy the tables once the GPU gets there; nothing may be staged, or wait."""
        self._num_blocks = tables.num_blocks.np.copy()
        self._dirty = num_dirty_rows(tables)
        with torch.inference_mode():
            for copy, table in zip(self._copies, tables.block_tables, strict=True):
                copy.copy_(table.gpu, non_blocking=True)
        if self._copied is not None:
            self._copied.record()

    def take(self) -> Snapshot | None:
        """Return the contents; `None` while the GPU has not copied them."""
        if self._copied is not None and not self._copied.query():
            return None
        tables = tuple([copy.numpy() for copy in self._copies])
        return Snapshot(self._num_blocks, tables, num_dirty_rows=self._dirty)


def num_dirty_rows(tables: Any) -> int:
    """Return the rows that the last gather filled, of vLLM's class or ours."""
    name = "num_dirty_rows" if hasattr(tables, "num_dirty_rows") else "_num_dirty_rows"
    return int(getattr(tables, name, 0))
