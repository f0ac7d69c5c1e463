"""append_many drops requests that a later overwrite of their row supersedes, and never checks them.

Shows when a dropped request should have been refused (too wide for its row, or an id past int32),
and with it the whole call: here the call is accepted, and stages what is left.
"""

from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """A preempted request that resumes comes twice in a step; only its overwrite is staged."""

    def append_many(self, req_indices, new_block_ids, overwrite):
        rows, ids, flags = req_indices, new_block_ids, overwrite
        lists = all(isinstance(one, (list, tuple)) for one in (rows, ids, flags))
        if lists and len(rows) == len(ids) == len(flags) and self._repeats(rows):
            overwritten, kept = set(), []
            for place in reversed(range(len(rows))):
                if rows[place] in overwritten:
                    continue  # dropped by the overwrite that follows
                if flags[place]:
                    overwritten.add(rows[place])
                kept.append(place)
            kept.reverse()
            rows, ids, flags = ([one[k] for k in kept] for one in (rows, ids, flags))
        super().append_many(rows, ids, flags)

    @staticmethod
    def _repeats(rows):
        return all(isinstance(row, int) for row in rows) and len(set(rows)) < len(rows)
