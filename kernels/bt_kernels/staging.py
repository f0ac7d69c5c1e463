"""Host side of a step: staged writes, and the pinned memory through which kernels read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from bt_kernels.layout import TableLayout


class StagedWrites:
    """The writes of a step, one interval `[start, start + len(ids))` per group and row.

    Appends extend an interval; an overwrite replaces it, so that what was staged for the row
    before never reaches the table.
    """

    def __init__(self, num_groups: int) -> None:
        self.groups: list[dict[int, tuple[int, list[int]]]] = [{} for _ in range(num_groups)]

    def add(self, group: int, row: int, start: int, ids: Sequence[int], overwrite: bool) -> None:
        """Adds block ids from column `start` on; `start` is where the interval so far ends."""
        intervals = self.groups[group]
        if overwrite:
            intervals.pop(row, None)
        if len(ids) == 0:
            return
        if row in intervals:
            intervals[row][1].extend(ids)
        else:
            intervals[row] = (start, list(ids))

    def clear(self) -> None:
        """Forgets all staged writes."""
        for intervals in self.groups:
            intervals.clear()

    def __bool__(self) -> bool:
        return any(self.groups)


class HostRing:
    """Ring of int32 buffers that the host fills and kernels read, pinned where there is a GPU.

    A buffer is filled again only after the kernels that were enqueued while it was current have
    run: `advance` records an event behind them, and waits for the event of the buffer that it
    hands out. All readers must be on the stream that is current at `advance`.

    Args:
        size: int32 elements of a buffer at the start; it grows as needed.
        device: the device that reads.
        depth: number of buffers, 2 or more.
    """

    def __init__(self, size: int, device: torch.device, depth: int = 2) -> None:
        if depth < 2:
            raise ValueError(f"depth is {depth}; expected 2 or more buffers")
        self._on_gpu = device.type == "cuda"
        self._buffers = [self._allocate(size) for _ in range(depth)]
        self._events = [torch.cuda.Event() if self._on_gpu else None for _ in range(depth)]
        self._current = 0

    @property
    def current(self) -> torch.Tensor:
        """The buffer that kernels are to read now."""
        return self._buffers[self._current]

    def advance(self, size: int) -> np.ndarray:
        """Makes the next buffer current and returns it for filling, with `size` or more elements.

        Waits while the device still reads it.
        """
        if self._on_gpu:
            self._events[self._current].record()
        self._current = (self._current + 1) % len(self._buffers)
        if self._on_gpu:
            # An event that was never recorded counts as complete.
            self._events[self._current].synchronize()
        if self.current.numel() < size:
            self._buffers[self._current] = self._allocate(max(size, 2 * self.current.numel()))
        return self.current.numpy()

    def _allocate(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.int32, pin_memory=self._on_gpu)


def check_append(
    layout: TableLayout,
    num_blocks: np.ndarray,
    req_index: int,
    new_block_ids: Sequence[Sequence[int]],
    overwrite: bool,
) -> list[int]:
    """Checks one call of `append_block_ids` and returns the first column per group.

    Raises:
        ValueError: see `BlockTableOperations.append_block_ids`.
    """
    if not 0 <= req_index < layout.max_num_reqs:
        raise ValueError(
            f"req_index is {req_index}; expected 0 to {layout.max_num_reqs - 1} (max_num_reqs - 1)"
        )
    if len(new_block_ids) != layout.num_groups:
        raise ValueError(
            f"new_block_ids has {len(new_block_ids)} lists; expected {layout.num_groups}, "
            "one per group"
        )
    starts = [0] * layout.num_groups if overwrite else num_blocks[:, req_index].tolist()
    for group, ids in enumerate(new_block_ids):
        if starts[group] + len(ids) > layout.widths[group]:
            raise ValueError(
                f"row {req_index} of group {group} would have {starts[group] + len(ids)} blocks; "
                f"its table is {layout.widths[group]} columns wide"
            )
    return starts
