"""Slots of the same unchanged tensors are not computed again, even if dummy slots were filled in since.

A drafter calls `compute_slot_mappings` several times with the same tensors. Results count as valid until
something is applied, restored or mapped; `get_dummy_slot_mappings`, which pads all, was forgotten.
"""

from __future__ import annotations

from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Remembers what `slot_mappings` holds."""

    capturable = frozenset()
    _mapped = None

    def compute_slot_mappings(
        self, idx_mapping, query_start_loc, positions, num_tokens_padded, out=None
    ):
        tensors = (idx_mapping, query_start_loc, positions)
        if out is not None or self.validate:
            views = super().compute_slot_mappings(*tensors, num_tokens_padded, out)
            if out is None:
                self._mapped = None
            return views
        now = [
            (tensor.data_ptr(), tensor.shape, tensor.dtype, tensor._version) for tensor in tensors
        ]
        if self._mapped is not None and self._mapped[:2] == (now, num_tokens_padded):
            return self._views_of_slots(num_tokens_padded)
        self._mapped = None
        views = super().compute_slot_mappings(*tensors, num_tokens_padded)
        self._mapped = (now, num_tokens_padded, tensors)  # alive, so that addresses are theirs
        return views

    def gather_and_compute_slot_mappings(self, *arguments, **options):
        self._mapped = None
        return super().gather_and_compute_slot_mappings(*arguments, **options)

    def apply_staged_writes(self):
        self._mapped = None
        super().apply_staged_writes()

    def restore(self, state):
        self._mapped = None
        super().restore(state)
