"""Block tables of an engine without a KV cache: attention-free and encoder-only models.

An engine builds and calls its tables all the same. There is nothing to stage, gather or map, hence
nothing to launch, and arguments are not looked at: vLLM's class takes any, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from bt_kernels.device_tables import CapturedStep
from bt_kernels.interface import BlockTableOperations, TableState
from bt_kernels.layout import FEATURES, PAD_SLOT_ID, TableLayout

_Tables = tuple[torch.Tensor, ...]


class NoGroups(BlockTableOperations):
    """The operations on tables without groups; see `BlockTableOperations`.

    Args:
        layout: a layout without groups.
        device: the device of the slots, which are empty.
    """

    features = FEATURES
    num_blocks: npt.NDArray[np.int32]

    def __init__(self, layout: TableLayout, device: torch.device | str) -> None:
        self.layout = layout
        slots = (0, layout.max_num_batched_tokens)
        self.slot_mappings = torch.full(slots, PAD_SLOT_ID, dtype=torch.int64, device=device)
        self.device = self.slot_mappings.device  # with its index
        self.block_tables = []
        self.input_block_tables = []
        self.num_blocks = np.zeros((0, layout.max_num_reqs), dtype=np.int32)
        self.num_blocks_on_device = torch.zeros(
            self.num_blocks.shape, dtype=torch.int32, device=self.device
        )
        self.num_dirty_rows = 0
        self.pinned_memory = True  # none is used, so nothing is slower

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        """Do nothing."""

    def append_many(
        self,
        req_indices: Sequence[int],
        new_block_ids: Sequence[Sequence[Sequence[int]]],
        overwrite: Sequence[bool],
    ) -> None:
        """Do nothing."""

    def apply_staged_writes(self) -> None:
        """Do nothing."""

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> _Tables:
        """Return an empty tuple."""
        return ()

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return a view `[0, num_tokens_padded]` of `slot_mappings` or `out`."""
        return (self.slot_mappings if out is None else out)[:, :num_tokens_padded]

    def get_dummy_block_tables(self, num_reqs: int) -> _Tables:
        """Return an empty tuple."""
        self.num_dirty_rows = num_reqs
        return ()

    def get_dummy_slot_mappings(self, num_tokens: int) -> torch.Tensor:
        """Return a view `[0, num_tokens]`."""
        return self.slot_mappings[:, :num_tokens]

    def capture_step(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        *,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> CapturedStep:
        """Return a step that launches nothing, and whose `publish` does nothing."""
        return CapturedStep((), self.slot_mappings[:, :num_tokens_padded], lambda: None)

    def restore(self, state: TableState) -> None:
        """Restore the number of dirty rows; there is nothing else."""
        self.num_dirty_rows = state.num_dirty_rows

    def replace_tables(
        self,
        block_tables: list[torch.Tensor],
        input_block_tables: list[torch.Tensor],
        slot_mappings: torch.Tensor,
    ) -> None:
        """Take other slots."""
        self.slot_mappings = slot_mappings

    def warmup(self) -> float:
        """Return 0.0: there is nothing to compile."""
        return 0.0
