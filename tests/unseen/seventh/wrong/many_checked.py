"""As fused_gather_slots, but append_many checks all requests, then appends (G + 1 launches a step).

Wrong: each request is checked against the number of blocks before the call. Two appends to one row
that fit alone, but not together, are found only when the first has been staged. And an append after
an overwrite in the same call is refused where the row was full before.

Shows: append_many with a row twice that overfills it, which must be refused and change nothing.
"""

from bt_kernels.staging import checked_row, refuse_ids
from bt_kernels.variants.fused_gather_slots import Variant as Base


class Variant(Base):
    """Stages many requests one by one, so that whatever `append_block_ids` does is done."""

    def append_many(self, req_indices, new_block_ids, overwrite):
        requests = list(zip(req_indices, new_block_ids, overwrite, strict=True))
        for request in requests:
            self._check_request(*request)
        for request in requests:
            self.append_block_ids(*request)

    def _check_request(self, req_index, new_block_ids, overwrite):
        row, widths = checked_row(self.layout, req_index), self.layout.widths
        if len(new_block_ids) != len(widths):
            raise ValueError(f"{len(new_block_ids)} lists of ids; expected {len(widths)}")
        for group, ids in enumerate(new_block_ids):
            refuse_ids(group, ids)
            end = len(ids) + (0 if overwrite else self.num_blocks.item(group, row))
            if end > widths[group]:
                raise ValueError(f"row {row} of group {group}: {end} blocks, width {widths[group]}")
