"""A step with a wrong `slots_out` is refused after its writes have been applied.

The buffer of the slots is checked only when slots are computed.
"""

from __future__ import annotations

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Checks what gather needs, and leaves the rest to the operation that needs it."""

    def prepare_step(
        self,
        idx_mapping,
        query_start_loc,
        positions,
        num_reqs_padded,
        num_tokens_padded,
        *,
        out=None,
        out_ptrs=None,
        num_computed_tokens=None,
        slots_out=None,
    ):
        batch = (idx_mapping, query_start_loc, positions, num_reqs_padded)
        options = {"out": out, "out_ptrs": out_ptrs, "num_computed_tokens": num_computed_tokens}
        if slots_out is None:
            return super().prepare_step(*batch, num_tokens_padded, **options)
        self._check_step(*batch, 0, **options, slots_out=None)
        self.apply_staged_writes()
        return self.gather_and_compute_slot_mappings(
            *batch, num_tokens_padded, **options, slots_out=slots_out
        )
