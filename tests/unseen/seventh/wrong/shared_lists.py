"""As fused, but a list of ids that several groups share is converted once (2 launches a step).

Engines whose groups have the same blocks pass one list for all of them.

Wrong: the groups then share the converted ids as well, and a further append to the row extends them
once for each group.

Shows: the same list object for two groups, and another append to the row before the next apply.
"""

from array import array
from operator import index

from bt_kernels.staging import StagedWrites
from bt_kernels.variants.fused import Variant as Base


class SharingWrites(StagedWrites):
    """Staged writes that convert each list of a request once."""

    def _read(self, row, block_ids, overwrite):
        row = index(row)
        converted = {}
        contents = []
        for ids in block_ids:
            found = converted.get(id(ids))
            if found is None:
                values = ids if type(ids) in (list, tuple) else list(ids)
                found = converted[id(ids)] = array("i", values)
            contents.append(found)
        if 0 <= row < self._max_num_reqs and len(contents) == len(self._groups):
            return row, contents, bool(overwrite)
        return None


class Variant(Base):
    """Stages in `SharingWrites`."""

    def _stage_in(self, _staged):
        super()._stage_in(SharingWrites(self.layout.widths, self.num_blocks))
