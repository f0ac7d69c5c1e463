"""A whole step inside a CUDA graph: what replays read, and the step as the caller sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bt_kernels import launches
from bt_kernels.layout import INT32_MAX
from bt_kernels.staging import CAPTURED_HEADER, RECORD_FIELDS, CapturedBuffer, StagedWrites

if TYPE_CHECKING:
    import torch

    from bt_kernels.device_tables.tables import DeviceBlockTables
    from bt_kernels.launches import Place


class CapturedWrites:
    """The buffer from which replays apply writes.

    It begins with the number of records, the number of the publication, and the number of the last
    one that was applied, which the device writes.

    Args:
        size: int32 elements for records and block ids.
        place: the device that reads.
    """

    def __init__(self, size: int, place: Place) -> None:
        self._buffer = CapturedBuffer(CAPTURED_HEADER + size, place)
        self._published = False  # and perhaps not replayed

    @property
    def is_pending(self) -> bool:
        """Whether something is published that was perhaps not replayed."""
        return self._published

    def launch(self, tables: DeviceBlockTables) -> None:
        """Launches the writes of whatever is published when the launch runs."""
        launches.apply_captured(tables, self._buffer.tensor)
        self._buffer.note_reader()

    def has_room(self, staged: StagedWrites) -> bool:
        """Whether so much can be published."""
        size = CAPTURED_HEADER + RECORD_FIELDS * staged.num_records + staged.num_ids
        return size <= self._buffer.tensor.numel()

    def publish(self, tables: DeviceBlockTables, staged: StagedWrites) -> None:
        """Fills the buffer for the next replay, once the last one has read it.

        What was published before and never replayed is applied first.
        """
        view = self._buffer.wait()
        number = view[1]
        if self._published and number != view[2]:
            self.launch(tables)
            self._buffer.wait()
        view[0] = sum(staged.pack(view, CAPTURED_HEADER))
        view[1] = (number + 1) % INT32_MAX
        self._published = True

    def settle(self, tables: DeviceBlockTables) -> None:
        """Applies what was published, before newer writes are: perhaps it was never replayed.

        If it was, it is written once more, and nothing changes.
        """
        if self._published:
            tables.refuse_capture("apply_staged_writes")
            self.launch(tables)
            self._published = False

    def discard(self) -> None:
        """Forgets what was published, even if a replay follows."""
        view = self._buffer.wait()
        view[0], view[2] = 0, view[1]
        self._published = False


class CapturedStep:
    """A step in a CUDA graph, from `DeviceBlockTables.capture_step`.

    Right before each replay call its `publish`, on the stream that the graph is replayed on, and
    replay once. A replay that was not published, or between which and its `publish` other writes
    were applied, writes old ids. Otherwise the tables may be used as ever.

    Args:
        block_tables: per group, the view `[num_reqs_padded, width]` that a replay fills.
        slot_mappings: the view `[G, num_tokens_padded]` that a replay fills.
        publish: what `publish` does.
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
        """Brings what has been staged to where the next replay reads it.

        Waits until the replay before has read its own. Rows that a larger batch left dirty are
        zeroed, writes too many for the captured buffer are applied, and so are those that were
        published and never replayed: by launches of their own, where the variant needs them.

        Raises:
            ValueError: while a graph is captured.
        """
        self._publish()
