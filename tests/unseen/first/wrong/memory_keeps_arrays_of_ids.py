"""Fault: ids that are given as array('i') are staged without a copy.

Seen: change the array between append_block_ids and apply: the changed ids are written; append
to the same row twice: the caller's array grows.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch

from bt_kernels.fusions import FusedApply
from bt_kernels.layout import TableLayout
from bt_kernels.staging import StagedWrites


class _Staged(StagedWrites):
    """Takes arrays of int32 as they are."""

    def _read(
        self, row: int, block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> tuple[int, list[array], bool] | None:
        request = super()._read(row, block_ids, overwrite)
        if request is None:
            return None
        kept = [
            ids if isinstance(ids, array) and ids.typecode == "i" else copied
            for ids, copied in zip(block_ids, request[1], strict=True)
        ]
        return request[0], kept, request[2]


class Variant(FusedApply):
    """Saves a copy of ids that have the right type already."""

    native = False

    def __init__(self, layout: TableLayout, device: torch.device | str, **options: object) -> None:
        super().__init__(layout, device, **options)
        self._stage_in(_Staged(layout.widths, self.num_blocks))
