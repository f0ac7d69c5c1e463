"""A whole step inside a CUDA graph: the buffer that replays read, and the caller's handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from bt_kernels import launches
from bt_kernels.layout import INT32_MAX
from bt_kernels.staging import CAPTURED_HEADER, RECORD_FIELDS, CapturedBuffer

if TYPE_CHECKING:
    import torch

    from bt_kernels.launches import Place
    from bt_kernels.staging import AnyStagedWrites


class Replayed(launches.Tables, Protocol):
    """Tables that replays write to: `DeviceBlockTables` of `tables.py`."""

    def refuse_capture(self, method: str) -> None:
        """See `DeviceBlockTables`."""
        ...


class CapturedWrites:
    """The buffer whose writes each replay applies.

    It begins with the number of records, the number of the publication, and the number of the last
    publication that was applied, which the device writes.

    Attributes:
        rows: input rows that the last published step fills.
        uncounted: input rows that its replay may have filled although `num_dirty_rows` of the
            tables does not count them, since a gather came between.

    Args:
        size: int32 elements for records and block ids.
        place: the device that reads.
    """

    def __init__(self, size: int, place: Place) -> None:
        self._buffer = CapturedBuffer(CAPTURED_HEADER + size, place, told=CAPTURED_HEADER)
        self._published = False  # true if a publication may not have been replayed yet
        self.rows = self.uncounted = 0

    @property
    def is_pending(self) -> bool:
        """Return whether something published may not have been replayed yet."""
        return self._published

    def launch(self, tables: Replayed) -> None:
        """Launch the kernel that writes whatever is published when it runs."""
        launches.apply_captured(tables, self._buffer.tensor)
        self._buffer.note_reader()

    def has_room(self, staged: AnyStagedWrites) -> bool:
        """Return whether the staged writes fit into the buffer."""
        size = CAPTURED_HEADER + RECORD_FIELDS * staged.num_records + staged.num_ids
        return size <= self._buffer.tensor.numel()

    def publish(self, tables: Replayed, staged: AnyStagedWrites) -> None:
        """Fill the buffer for the next replay, once the last one has read it.

        An earlier publication that was never replayed is applied first.
        """
        view = self._buffer.wait()
        number = view[1]
        if self._published and number != view[2]:
            self.launch(tables)
            self._buffer.wait()
        view[0] = sum(staged.pack(view, CAPTURED_HEADER))
        view[1] = (number + 1) % INT32_MAX
        self._buffer.upload()
        self._published = True

    def published_rows(self) -> list[tuple[int, int]]:
        """Return group and row of each published write that may not have been replayed yet."""
        view = self._buffer.view
        return places_of(view, CAPTURED_HEADER, RECORD_FIELDS, view[0] if self._published else 0)

    def take_uncounted(self) -> int:
        """Return the uncounted rows, which a gather zeroes like dirty ones, and reset them.

        A pending replay may fill rows after the gather. The host learns only afterwards that a
        replay has run, so a gather may zero its rows once more than needed.
        """
        found = self.uncounted
        self.uncounted = self.rows if self.is_awaited else 0
        return found

    @property
    def is_awaited(self) -> bool:
        """Return whether the last publication is not known to have been replayed or applied."""
        view = self._buffer.view
        return self._published and view[1] != view[2]

    def settle(self, tables: Replayed) -> None:
        """Apply the last publication before newer writes, in case it was never replayed.

        If it was replayed, writing it again changes nothing.
        """
        if self._published:
            tables.refuse_capture("apply_staged_writes")
            self.launch(tables)
            self._published = False

    def discard(self) -> None:
        """Forget the publication, even if a replay follows."""
        view = self._buffer.wait()
        view[0], view[2] = 0, view[1]
        self._buffer.upload()
        self._published = False
        self.rows = self.uncounted = 0


def places_of(view: memoryview, first: int, fields: int, num_records: int) -> list[tuple[int, int]]:
    """Return group and row of records: the first two fields of both kinds of record."""
    ends = range(first, first + fields * num_records, fields)
    return [(view[place], view[place + 1]) for place in ends]


class CapturedStep:
    """A step in a CUDA graph, from `DeviceBlockTables.capture_step`.

    Right before each replay call `publish`, on the stream of the replay, and then replay once. A
    replay writes old ids if `publish` was not called before it, or if other writes were applied in
    between. Then it may also fill rows that no later call zeroes: those behind the last gather's.
    Gathers and slots alone may come in between, and writes staged after `publish` are left to the
    next call that applies. If a gather after `publish` fills rows behind the rows of the step, they
    may be left to the next call that zeroes.

    Args:
        block_tables: per group, the view `[num_reqs_padded, width]` that a replay fills. Both views
            are of the tables as they were at the capture.
        slot_mappings: the view `[G, num_tokens_padded]` that a replay fills.
        publish: the function behind `publish`.
    """

    def __init__(
        self,
        block_tables: tuple[torch.Tensor, ...],
        slot_mappings: torch.Tensor,
        publish: Callable[[], None],
    ) -> None:
        self.block_tables = block_tables
        self.slot_mappings = slot_mappings
        self._publish = publish

    def publish(self) -> None:
        """Put the staged writes into the buffer that the next replay reads.

        Waits until the previous replay has read its buffer. Also zeroes rows that a larger batch
        left dirty, and applies writes that do not fit into the captured buffer or were published
        but never replayed; some variants make separate launches for these.

        Raises:
            ValueError: while a graph is captured.
        """
        self._publish()
