"""Block ids in int32 arrays are kept by reference until the apply.

Shows: append ids as numpy arrays of int32 (other dtypes and lists are copied), change the arrays, as
an engine does that reuses them, and apply.
"""

from __future__ import annotations

import numpy as np

from bt_kernels.layout import INT32_MAX, INT32_MIN
from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """Counts the blocks of arrays at once, and copies their ids when the step is applied."""

    def __init__(self, layout, device, **options) -> None:
        super().__init__(layout, device, **options)
        self._held = []

    def append_block_ids(self, req_index, new_block_ids, overwrite) -> None:
        arrays = self._arrays(req_index, new_block_ids, overwrite)
        if arrays is None:
            self._stage_held()
            super().append_block_ids(req_index, new_block_ids, overwrite)
            return
        before = self.num_blocks[:, req_index].copy()
        self._held.append((req_index, before, arrays, overwrite))
        lengths = [len(ids) for ids in arrays]
        self.num_blocks[:, req_index] = lengths if overwrite else before + lengths

    def append_many(self, req_indices, new_block_ids, overwrite) -> None:
        self._stage_held()
        super().append_many(req_indices, new_block_ids, overwrite)

    def apply_staged_writes(self) -> None:
        self._stage_held()
        super().apply_staged_writes()

    def restore(self, state) -> None:
        self._stage_held()
        super().restore(state)

    def replace_tables(self, *tables) -> None:
        self._stage_held()
        super().replace_tables(*tables)

    def _publish_for_replay(self, *batch) -> None:
        self._stage_held()
        super()._publish_for_replay(*batch)

    def _arrays(self, row, block_ids, overwrite):
        """The ids as int32 arrays; `None` where they have to be looked at one by one."""
        layout = self.layout
        if (
            type(row) is not int
            or not 0 <= row < layout.max_num_reqs
            or type(block_ids) not in (list, tuple)
            or len(block_ids) != layout.num_groups
            or self.redirect_writes_to_null_block
        ):
            return None
        arrays = []
        for group, ids in enumerate(block_ids):
            if type(ids) is not np.ndarray or ids.dtype.kind != "i" or ids.ndim != 1:
                return None
            if len(ids) and not (INT32_MIN <= ids.min() and ids.max() <= INT32_MAX):
                return None
            before = 0 if overwrite else int(self.num_blocks[group, row])
            if before + len(ids) > layout.widths[group]:
                return None
            arrays.append(ids.astype(np.int32, copy=False))
        return arrays

    def _stage_held(self) -> None:
        held, self._held = self._held, []
        for row, before, _, _ in reversed(held):
            self.num_blocks[:, row] = before
        for row, _, arrays, overwrite in held:
            self._staged.append(row, arrays, overwrite, False)
