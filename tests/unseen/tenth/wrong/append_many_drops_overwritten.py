"""As one_launch, but `append_many` stages nothing that a later request of the call overwrites.

A request that is preempted and resumed in a step has two entries, of which the second overwrites
the first; staging the first copies ids that are never written.

Wrong: what is dropped is not checked, so a call that has to be refused is accepted.
Shows: `append_many` with a request that is too long for its row, and an overwrite of the row.
"""

from bt_kernels.variants.one_launch import Variant as Base


class Variant(Base):
    """Looks for overwrites first."""

    def append_many(self, req_indices, new_block_ids, overwrite):
        arguments = req_indices, new_block_ids, overwrite
        if not all(type(one) is list for one in arguments) or len({*map(len, arguments)}) > 1:
            super().append_many(*arguments)
            return
        rows, ids, flags = arguments
        if all(type(row) is int for row in rows) and len(set(rows)) < len(rows):
            last = {row: i for i, (row, flag) in enumerate(zip(rows, flags, strict=False)) if flag}
            kept = [i for i, row in enumerate(rows) if i >= last.get(row, 0)]
            rows = [rows[i] for i in kept]
            ids = [ids[i] for i in kept]
            flags = [flags[i] for i in kept]
        super().append_many(rows, ids, flags)
