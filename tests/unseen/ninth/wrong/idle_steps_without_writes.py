"""As one_launch, but a step with nothing staged takes the kernel of gather and slots alone.

Most decode steps bring no new block to any row. They need no headers nor marks in pinned memory,
and the fused kernel of gather and slots is smaller.

Wrong: what a captured step published and no replay applied also has to be applied by the step, as
`prepare_step` applies first. With nothing staged it is not.
Shows: `capture_step`, stage, `publish` without a replay, then `prepare_step` with nothing staged.
"""

from __future__ import annotations

from bt_kernels.variants.one_launch import Variant as Base


class Variant(Base):
    """Two ways to make a step: with writes, and without any."""

    def prepare_step(
        self,
        idx_mapping,
        query_start_loc,
        positions,
        num_reqs_padded,
        num_tokens_padded,
        **options,
    ):
        batch = (idx_mapping, query_start_loc, positions, num_reqs_padded, num_tokens_padded)
        if self._staged:
            return super().prepare_step(*batch, **options)
        self.refuse_capture("prepare_step")
        return self.gather_and_compute_slot_mappings(*batch, **options)
