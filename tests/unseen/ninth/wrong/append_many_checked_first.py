"""As baseline, but `append_many` checks all requests and then stages them one by one.

Nothing has to be kept of a request between its check and its staging, so no list of requests is
copied twice.

Wrong: each request is checked against the blocks that its row has before the call. A row may come
twice: then the second entry follows on the first one.
Shows: `append_many` with a row twice. Entries that fit one by one but not together are refused with
the first one staged; an overwrite with few ids and an append that fits only behind it are refused.
"""

from __future__ import annotations

from array import array
from operator import index

from bt_kernels.staging import refuse_append_many
from bt_kernels.variants.baseline import Variant as Base


class Variant(Base):
    """Checks, then stages."""

    def append_many(self, req_indices, new_block_ids, overwrite):
        requests = list(req_indices), list(new_block_ids), list(overwrite)
        fits = len(requests[0]) == len(requests[1]) == len(requests[2])
        if not fits or not all(map(self._fits, *requests)):
            refuse_append_many(self.layout, self.num_blocks, *requests)
            raise ValueError("a request of append_many does not fit its row")
        for one in zip(*requests, strict=True):
            self.append_block_ids(*one)

    def _fits(self, row, block_ids, overwrite):
        try:
            row = index(row)
            lengths = [len(array("i", [index(one) for one in ids])) for ids in block_ids]
        except (OverflowError, TypeError):
            return False
        if not 0 <= row < self.layout.max_num_reqs or len(lengths) != self.layout.num_groups:
            return False
        starts = [0] * len(lengths) if overwrite else self.num_blocks[:, row].tolist()
        return all(
            start + length <= width
            for start, length, width in zip(starts, lengths, self.layout.widths, strict=True)
        )
