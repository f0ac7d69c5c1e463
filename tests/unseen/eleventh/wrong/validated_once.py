"""With validate, the contents of a batch's buffers are checked only in the first call with them.

Shows when persistent input buffers are refilled with contents that must be refused, after a step
with the same buffers, sizes and outputs was found right.
"""

from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Waits for the device once per set of buffers, not in every call."""

    def __init__(self, layout, device, **options):
        self._seen = set()
        super().__init__(layout, device, **options)

    def _check_slots(
        self, num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, out
    ):
        arguments = (num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, out)
        if not self.validate:
            return super()._check_slots(*arguments)
        buffers = (
            idx_mapping,
            query_start_loc,
            positions,
            self.slot_mappings if out is None else out,
        )
        key = (num_reqs, int(num_tokens_padded) if isinstance(num_tokens_padded, int) else None)
        key += tuple((t.data_ptr(), t.dtype, tuple(t.shape)) for t in buffers)
        if key not in self._seen:
            views = super()._check_slots(*arguments)
            self._seen.add(key)
            return views
        self.validate = False
        try:
            return super()._check_slots(*arguments)
        finally:
            self.validate = True
