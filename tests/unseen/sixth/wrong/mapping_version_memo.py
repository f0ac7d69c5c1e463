"""Skips a gather that would repeat the last one, told by torch's version counters of the tensors.

Shows when idx_mapping shares memory with a numpy array, as the host buffers of engines do, and the
array is changed between two gathers without any write between: no version counter changes.
"""

from __future__ import annotations

from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """A gather again for the same batch (several models, drafts) launches nothing."""

    _last = None
    _num_applied = 0

    def _launch_apply(self, records_per_group):
        self._num_applied += 1
        super()._launch_apply(records_per_group)

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        batch = (idx_mapping, num_rows, num_computed_tokens, out_ptrs)
        if out_ptrs is not None:  # the input tables stay as they are
            super()._launch_gather(*batch)
            return
        key = None if num_computed_tokens is not None else self._key(idx_mapping, num_rows)
        if key is not None and self._last is not None and self._last[0] is idx_mapping:
            if self._last[1] == key:
                return
        super()._launch_gather(*batch)
        self._last = None if key is None else (idx_mapping, key)

    def _key(self, idx_mapping, num_rows):
        """Return all that the result depends on; `None` where that cannot be told."""
        watched = (
            idx_mapping,
            self.num_blocks_on_device,
            *self.block_tables,
            *self.input_block_tables,
        )
        if self._captured_writes is not None or self.place.is_capturing():
            return None  # replays write unseen
        if any(tensor.is_inference() for tensor in watched):
            return None
        versions = tuple([(tensor.data_ptr(), tensor._version) for tensor in watched])
        return num_rows, self._num_applied, versions
