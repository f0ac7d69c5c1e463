"""As fused, but a whole step makes each check once (2 launches a step).

`prepare_step` checks the batch, applies, and leaves what concerns tokens and outputs to the
combined call, which makes all of these checks anyway: less host time.

Wrong: where that call refuses the tokens or the caller's outputs, the writes have been applied.

Shows: `prepare_step` with something staged and with tokens or outputs that are refused, such as
`num_tokens_padded` past the slots: the source tables must not have changed.
"""

from bt_kernels.device_tables import arguments
from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Replaces the whole step."""

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
        self.refuse_capture("prepare_step")
        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping)
        arguments.check_rows(self.layout, num_reqs, num_reqs_padded)
        self._checked_dirty_rows()
        self.apply_staged_writes()
        return self.gather_and_compute_slot_mappings(
            idx_mapping,
            query_start_loc,
            positions,
            num_reqs_padded,
            num_tokens_padded,
            out=out,
            out_ptrs=out_ptrs,
            num_computed_tokens=num_computed_tokens,
            slots_out=slots_out,
        )
