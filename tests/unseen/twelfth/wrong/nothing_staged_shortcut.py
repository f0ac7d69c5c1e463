"""A step with nothing staged is a gather with slots, which applies nothing that was published.

Shows when a captured step was published and not replayed, and the next call is `prepare_step` with
nothing staged since: it has to apply what was published, and looks up the old tables.
"""

from bt_kernels.variants.one_launch_graph import Variant as Base


class Variant(Base):
    """Saves the headers of a step that writes nothing, as most steps of a decode do."""

    def prepare_step(
        self,
        idx_mapping,
        query_start_loc,
        positions,
        num_reqs_padded,
        num_tokens_padded,
        **options,
    ):
        self.refuse_capture("prepare_step")
        step = super().prepare_step if self._staged else self.gather_and_compute_slot_mappings
        return step(
            idx_mapping,
            query_start_loc,
            positions,
            num_reqs_padded,
            num_tokens_padded,
            **options,
        )
