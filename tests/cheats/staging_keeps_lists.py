"""`append_many` keeps references to the caller's lists; they are read when writes are applied.

A caller may change its lists once the call has returned, and then wrong block ids are written. Rows
that would get too wide are refused too late.
"""

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    def __init__(self, layout, device, **options):
        self._owed = []
        super().__init__(layout, device, **options)

    def _settle(self):
        while self._owed:
            super().append_many(*self._owed.pop(0))

    def append_many(self, req_indices, new_block_ids, overwrite):
        self._owed.append((req_indices, new_block_ids, overwrite))

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        self._settle()
        super().append_block_ids(req_index, new_block_ids, overwrite)

    def apply_staged_writes(self):
        self._settle()
        super().apply_staged_writes()

    def restore(self, state):
        self._owed.clear()
        super().restore(state)
