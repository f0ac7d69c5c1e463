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

    def pack_words(self, words: memoryview, slots: int, /) -> int:
        num_apart = super().pack_words(words, slots)
        for place in range(slots * len(self._groups) if num_apart >= 0 else 0):
            if words[place] != NOTHING:
                words[place] &= ~(0x7F00 << 32)
        return num_apart


NOTHING = 1 << 62 | 32767 << 47


class Variant(OneLaunchVariant):
    """Words with spare bits."""

    native = False

    def __init__(self, layout: TableLayout, device: torch.device | str, **options: object) -> None:
        super().__init__(layout, device, **options)
        self._staged = _Staged(layout.widths, self.num_blocks)
