"""Constants of layouts are shared between tables by a key without the rank: the second rank gets the first one's.

An engine, or a test, that makes the tables of several ranks in one process maps all tokens as the first.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.baseline import Variant as Base


_constants = {}


def constants_of(layout):
    """Per group: block size, ranks, rank, interleave, width, and whether it has slots."""
    key = (
        layout.block_sizes,
        layout.widths,
        layout.slot_mapping_enabled,
        layout.cp_sizes,
        layout.cp_interleave,
    )
    if key not in _constants:
        _constants[key] = [
            (size, ranks, layout.cp_rank, layout.cp_interleave, width, enabled)
            for size, ranks, width, enabled in zip(
                layout.block_sizes,
                layout.cp_sizes,
                layout.widths,
                layout.slot_mapping_enabled,
                strict=True,
            )
        ]
    return _constants[key]


class Variant(Base):
    """Takes numbers of the layout from a table of known ones."""

    capturable = frozenset()

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._constants = constants_of(layout)

    def _existing(self, idx_mapping):
        """The rows of a batch, int64; -1 for those that do not exist."""
        rows = idx_mapping.long()
        return torch.where(rows < self.layout.max_num_reqs, rows, -1)

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        target = self.slot_mappings if out is None else out
        rows = self._existing(idx_mapping)
        starts = query_start_loc[: rows.shape[0] + 1].long()
        num_tokens = int(starts[-1])
        rows = torch.repeat_interleave(rows, starts.diff())
        for group in range(self.layout.num_groups):
            target[group, :num_tokens] = self._map(group, rows, positions[:num_tokens])
            target[group, num_tokens:] = PAD_SLOT_ID

    def _map(self, group, rows, positions):
        """The slots of tokens."""
        size, ranks, rank, interleave, width, enabled = self._constants[group]
        columns = torch.div(positions, size * ranks, rounding_mode="floor")
        offsets = positions - columns * (size * ranks)
        inside = (rows >= 0) & (columns >= 0) & (columns < width * enabled)
        if ranks > 1:
            turns = offsets // interleave
            inside &= turns % ranks == rank
            offsets = turns // ranks * interleave + offsets % interleave
        ids = self.block_tables[group][rows.clamp(min=0), columns.clamp(0, width - 1)].long()
        return torch.where(inside, ids * size + offsets, PAD_SLOT_ID)
