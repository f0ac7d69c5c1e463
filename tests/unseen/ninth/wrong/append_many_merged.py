"""As fused_apply, but `append_many` stages each row once.

What it does: a row that comes several times in a call (a request that is preempted and resumed, or
one that gets blocks twice) is merged into one entry before staging: appends are joined, and an
overwrite replaces what came before it in the call.

Wrong: what an overwrite replaces is dropped unchecked, so that a call is accepted with a request
that has no room in its row (or an id that is no int32) if a later one overwrites the row.

Shows: `append_many` with an append past the row's width, then an overwrite of the same row.
"""

from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """Merges the requests of a row."""

    def append_many(self, req_indices, new_block_ids, overwrite):
        try:
            merged = self._merge(list(req_indices), list(new_block_ids), list(overwrite))
        except TypeError:  # to be refused
            merged = None
        if merged is None:
            super().append_many(req_indices, new_block_ids, overwrite)
        else:
            super().append_many(*merged)

    def _merge(self, rows, block_ids, overwrite):
        """The three arguments with each row once; `None` where each is there once already."""
        if len(set(rows)) == len(rows) or not len(rows) == len(block_ids) == len(overwrite):
            return None
        by_row = {}
        for row, lists, replaces in zip(rows, block_ids, overwrite, strict=True):
            before = by_row.get(row)
            if before is None or replaces:
                by_row[row] = ([list(ids) for ids in lists], replaces)
            else:
                for mine, ids in zip(before[0], lists, strict=True):
                    mine.extend(ids)
        lists = [entry[0] for entry in by_row.values()]
        return list(by_row), lists, [entry[1] for entry in by_row.values()]
