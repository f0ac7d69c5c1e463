"""With `validate`, tensors that passed once are not looked at again at the same address and version.

An engine that refills its buffers through numpy, which torch's version counters do not show, has wrong
contents accepted from the second call on, with positions and mapping of the same lengths.
"""

from __future__ import annotations

from bt_kernels.variants.fused_gather_slots import Variant as Base


class Variant(Base):
    """Remembers sound arguments of slots."""

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._sound = {}

    def _check_slots(
        self, num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, out
    ):
        arguments = (num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, out)
        if not self.validate:
            return super()._check_slots(*arguments)
        tensors = (idx_mapping, query_start_loc, positions)
        limit = None if out is None else out.shape
        key = (
            *(
                (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor._version)
                for tensor in tensors
            ),
            (num_tokens_padded, limit),
        )
        if key in self._sound:
            self.validate = False
            try:
                return super()._check_slots(*arguments)
            finally:
                self.validate = True
        views = super()._check_slots(*arguments)
        self._sound[key] = tensors  # alive, so that addresses are theirs
        return views
