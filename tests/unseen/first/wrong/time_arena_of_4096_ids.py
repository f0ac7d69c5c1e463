"""Fault: staged ids lie in a ring of 4096 elements, which a step with more of them overruns.

Seen: with more than 4096 ids staged before one apply, rows staged first get ids of those staged
last.
"""

from __future__ import annotations

from array import array

import numpy as np

from bt_kernels.fusions import FusedApply

ROOM = 4096


class Variant(FusedApply):
    """Ids of a step are kept side by side."""

    native = False

    def _publish(self) -> list[int]:
        arena, head = np.zeros(ROOM, np.int32), 0
        places = []
        for intervals in self._staged._groups:
            for _, ids in intervals.values():
                places.append((np.arange(head, head + len(ids)) % ROOM, ids))
                arena[places[-1][0]] = ids
                head += len(ids)
        for place, ids in places:
            ids[:] = array("i", arena[place].tolist())
        return super()._publish()
