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

    def pack_words(self, words: memoryview, slots: int, /) -> bool:
        if not super().pack_words(words, slots):
            return False
        for place, word in enumerate(words):
            if word != NOTHING:
                words[place] = word & ~(0x7F00 << 32)
        return True


NOTHING = 1 << 62 | 32767 << 47


class Variant(OneLaunchVariant):
    """Words with spare bits."""

    native = False

    def __init__(self, layout: TableLayout, device: torch.device | str, **options: object) -> None:
        super().__init__(layout, device, **options)
        self._staged = _Staged(layout.widths, self.num_blocks)
