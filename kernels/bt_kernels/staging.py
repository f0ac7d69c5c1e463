"""Host side of a step: staged writes, and the pinned memory through which kernels read them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NoReturn

import torch

from bt_kernels import device_code
from bt_kernels.layout import INT32_MAX, INT32_MIN, TableLayout, index_of

RECORD_FIELDS: int = device_code.RECORD_FIELDS.value
CAPTURED_HEADER: int = device_code.CAPTURED_HEADER.value


class StagedWrites:
    """The writes of a step, one interval `[start, start + len(ids))` per group and row.

    Appends extend an interval; an overwrite replaces it, so that what was staged for the row
    before never reaches the table. An interval may be empty: the row then owns `start` blocks.
    """

    def __init__(self, num_groups: int) -> None:
        self.groups: list[dict[int, tuple[int, array[int]]]] = [{} for _ in range(num_groups)]

    def add(self, group: int, row: int, start: int, ids: array[int], overwrite: bool) -> None:
        """Adds block ids from column `start` on; `start` is where the interval so far ends.

        Keeps `ids`, and may extend them.
        """
        intervals = self.groups[group]
        if overwrite or row not in intervals:
            intervals[row] = (start, ids)
        else:
            intervals[row][1].extend(ids)

    def pack(self, first: int) -> tuple[list[int], array[int]]:
        """The writes as kernels read them, the groups one after the other.

        Args:
            first: where the result will be in the buffer, in elements.

        Returns:
            Records per group; and a record for each interval, with group, row, start, length and
            the place of its block ids in the buffer, followed by all block ids.
        """
        records_per_group = [len(intervals) for intervals in self.groups]
        place = first + RECORD_FIELDS * sum(records_per_group)
        records: list[int] = []
        contents = array("i")
        for group, intervals in enumerate(self.groups):
            for row, (start, ids) in intervals.items():
                length = len(ids)
                records.extend((group, row, start, length, place))
                contents.extend(ids)
                place += length
        # Of all ways from Python objects to int32 in place, the quickest goes by `array`.
        packed = array("i", records)
        packed.extend(contents)
        return records_per_group, packed

    def size(self) -> int:
        """Elements that `pack` returns."""
        return sum(RECORD_FIELDS + len(ids) for group in self.groups for _, ids in group.values())

    def clear(self) -> None:
        """Forgets all staged writes."""
        for intervals in self.groups:
            intervals.clear()

    def __bool__(self) -> bool:
        return any(self.groups)


class HostRing:
    """Ring of int32 buffers that the host fills and kernels read, pinned where there is a GPU.

    A buffer is filled again only after the kernels that were enqueued while it was current have
    run. Who knows how many buffers can be in flight at most says so, and then nothing has to be
    waited for. Otherwise `advance` records an event behind the readers of a buffer, and waits for
    the event of the buffer that it hands out; all readers must then be on the stream that is
    current at `advance`.

    Args:
        size: int32 elements of a buffer at the start.
        device: the device that reads.
        in_flight: buffers that the device may have yet to read, by the caller's own promise, when
            `advance` is called. `None`: nothing is promised.
        depth: number of buffers where nothing is promised. With 1, kernels always read from one
            address, and each `advance` waits for the readers before it.
        fixed: never grow, since the address of a buffer is captured in a graph.

    Raises:
        ValueError: when `depth` or `in_flight` is below 1.
    """

    def __init__(
        self,
        size: int,
        device: torch.device,
        *,
        in_flight: int | None = None,
        depth: int = 2,
        fixed: bool = False,
    ) -> None:
        for name, value in (("in_flight", in_flight), ("depth", depth)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; expected 1 or more")
        self._on_gpu = device.type == "cuda"
        self._waits = self._on_gpu and in_flight is None
        self.depth = depth if in_flight is None else in_flight + 1
        self._fixed = fixed
        self._buffers = [self._allocate(size) for _ in range(self.depth)]
        self._views = [memoryview(buffer.numpy()) for buffer in self._buffers]
        self._events = [torch.cuda.Event() if self._waits else None for _ in range(self.depth)]
        self._current = 0

    @property
    def current(self) -> torch.Tensor:
        """The buffer that kernels are to read now."""
        return self._buffers[self._current]

    def has_room(self, size: int) -> bool:
        """Whether `advance` can give so many elements."""
        return not self._fixed or size <= self.current.numel()

    def advance(self, size: int) -> memoryview:
        """Makes the next buffer current and returns it for filling, with `size` or more elements.

        Waits while the device still reads it, unless that has been promised.

        Raises:
            ValueError: when a ring that never grows has less room.
        """
        if not self.has_room(size):
            raise ValueError(f"size is {size}; expected at most {self.current.numel()}")
        if self._waits:
            self._events[self._current].record()
        self._current = (self._current + 1) % self.depth
        if self._waits:
            # An event that was never recorded counts as complete.
            self._events[self._current].synchronize()
        view = self._views[self._current]
        if len(view) < size:
            buffer = self._allocate(max(size, 2 * len(view)))
            view = memoryview(buffer.numpy())
            self._buffers[self._current], self._views[self._current] = buffer, view
        return view

    def _allocate(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.int32, pin_memory=self._on_gpu)


def checked_row(layout: TableLayout, req_index: int) -> int:
    """A request row as an integer.

    Raises:
        ValueError: when it is none, or does not exist.
    """
    row = index_of(req_index)
    if row is None or not 0 <= row < layout.max_num_reqs:
        raise ValueError(
            f"req_index is {req_index}; expected 0 to {layout.max_num_reqs - 1} (max_num_reqs - 1)"
        )
    return row


def refuse_lists(layout: TableLayout, new_block_ids: Sequence[Sequence[int]]) -> NoReturn:
    """Raises for lists of ids that are not one per group."""
    raise ValueError(
        f"new_block_ids has {len(new_block_ids)} lists; expected {layout.num_groups}, one per group"
    )


def refuse_width(layout: TableLayout, req_index: int, group: int, num_blocks: int) -> NoReturn:
    """Raises for a row that would become wider than its table."""
    raise ValueError(
        f"row {req_index} of group {group} would have {num_blocks} blocks; its table is "
        f"{layout.widths[group]} columns wide"
    )


def refuse_ids(group: int, ids: Sequence[int]) -> None:
    """Raises for the first id of a group that is no integer, or does not fit int32, if any is."""
    for index, value in enumerate(ids):
        if not hasattr(value, "__index__") or not INT32_MIN <= int(value) <= INT32_MAX:
            raise ValueError(
                f"new_block_ids[{group}][{index}] is {value!r}; expected an integer from "
                f"{INT32_MIN} to {INT32_MAX} (int32)"
            )
