"""Fault: writes that a launch carries have 8 bits for the column.

Seen: a step that writes one block to few rows, at column 256 or later, writes it 256 columns or
more to the left; writes of several ids are right.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import TableLayout
from bt_kernels.staging import StagedWrites
from bt_kernels.variants.one_launch import Variant as OneLaunchVariant


class _Staged(StagedWrites):
    """Packs words with less room for columns."""

    def pack_words(
        self, bitmap: memoryview, payload: memoryview, ids_apart: memoryview | None = None, /
    ) -> tuple[int, int, int] | None:
        packed = super().pack_words(bitmap, payload, ids_apart)
        # What is not carried is packed as int32.
        if packed is not None and payload.format == "q":
            for place in range(min(packed[0], len(payload))):
                if payload[place] >= 0:  # a single id
                    payload[place] &= ~(0xFF00 << 32)
        return packed


class Variant(OneLaunchVariant):
    """Words with spare bits."""

    native = False

    def __init__(self, layout: TableLayout, device: torch.device | str, **options: object) -> None:
        super().__init__(layout, device, **options)
        self._stage_in(_Staged(layout.widths, self.num_blocks))
