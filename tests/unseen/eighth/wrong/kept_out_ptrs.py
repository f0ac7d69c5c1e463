"""As fused_gather_slots, but the addresses of `out` are copied to the device only if it is new.

A caller who passes no `out_ptrs` mostly has one list of tables, which he passes in every step. The
list is held, so that no other can have its identity.

Wrong: the same list may hold other tables than before.

Shows: two gathers without `out_ptrs` whose `out` is one list, in which a table was replaced in
between (by one for more rows, for example).
"""

from bt_kernels.variants.fused_gather_slots import Variant as Base


class Variant(Base):
    """Keeps the addresses of the last `out`."""

    _last_out = None
    _last_ptrs = None

    def _options(self, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        if out is None or out_ptrs is not None:
            return super()._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        if out is self._last_out:
            window = self._check_options(num_reqs_padded, out, None, num_computed_tokens)
            return window, self._last_ptrs
        window, out_ptrs = super()._options(num_reqs_padded, out, None, num_computed_tokens)
        if not self.place.is_capturing():
            self._last_out, self._last_ptrs = out, out_ptrs
        return window, out_ptrs
