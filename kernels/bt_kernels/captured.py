"""A whole step inside a CUDA graph, as the caller sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from bt_kernels.device_tables import DeviceBlockTables


class CapturedStep:
    """A step in a CUDA graph, from `DeviceBlockTables.capture_step`.

    Right before each replay call `publish`, on the stream that the graph is replayed on. Between
    the two, apply nothing else: the replay would come after it. At all other times the tables may
    be used as ever.

    Args:
        tables: whose step it is.
        block_tables: per group, the view `[num_reqs_padded, width]` that a replay fills.
        slot_mappings: the view `[G, num_tokens_padded]` that a replay fills.
    """

    def __init__(
        self,
        tables: DeviceBlockTables,
        block_tables: tuple[torch.Tensor, ...],
        slot_mappings: torch.Tensor,
    ) -> None:
        self.block_tables = block_tables
        self.slot_mappings = slot_mappings
        self._tables = tables

    def publish(self) -> None:
        """Brings what has been staged to where the next replay reads it.

        Waits until the replay before has read its own, and with it for all that the stream has been
        given. Rows that a larger batch left dirty are zeroed by a launch of their own. Writes too
        many for the captured buffer are applied by one, and so are those that were published and
        never replayed.
        """
        self._tables.publish_for_replay(self.block_tables[0].shape[0])
