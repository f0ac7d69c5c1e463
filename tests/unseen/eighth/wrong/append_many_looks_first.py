"""As one_launch, but `append_many` checks the widths of all requests at once, with numpy.

What passes is then staged request by request.

Wrong: a row that comes twice is checked against its number of blocks before the call both times. If
only both together are too many, the second is refused when the first has been staged.

Shows: `append_many` with a row twice, each append fitting and both not: it is refused, but the
row's number of blocks has changed.
"""

from array import array

import numpy as np

from bt_kernels.staging import refuse_append
from bt_kernels.variants.one_launch import Variant as Base


class Variant(Base):
    """Replaces `append_many`."""

    def append_many(self, req_indices, new_block_ids, overwrite):
        contents = self._converted(req_indices, new_block_ids, overwrite)
        if contents is None:
            super().append_many(req_indices, new_block_ids, overwrite)
            return
        redirect = self.redirect_writes_to_null_block
        for row, lists, replaces in zip(req_indices, contents, overwrite, strict=True):
            if not self._staged.append(row, lists, replaces, redirect):
                refuse_append(self.layout, self.num_blocks, row, lists, replaces)

    def _converted(self, rows, block_ids, overwrite):
        """Ids of all requests, or `None` where something may be wrong with one."""
        layout = self.layout
        try:
            if not 0 < len(rows) == len(block_ids) == len(overwrite):
                return None
            if not all(type(row) is int and 0 <= row < layout.max_num_reqs for row in rows):
                return None
            contents = [[array("i", list(ids)) for ids in lists] for lists in block_ids]
        except (OverflowError, TypeError):
            return None
        if any(len(lists) != layout.num_groups for lists in contents):
            return None
        added = np.array([[len(ids) for ids in lists] for lists in contents])
        owned = self.num_blocks[:, list(rows)].T
        replaced = np.array([bool(flag) for flag in overwrite])[:, None]
        ends = added + np.where(replaced, 0, owned)
        return contents if (ends <= np.array(layout.widths)).all() else None
