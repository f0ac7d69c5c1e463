"""Changes `num_dirty_rows` before the tokens are checked.

It shows after a combined call that is refused for its tokens (such as int32 positions) and had
fewer requests than the batch before: the next gather does not zero the rows of that batch.
"""

from bt_kernels import launches
from bt_kernels.device_tables import arguments
from bt_kernels.fusions import FusedApply, FusedGatherSlots


class Variant(FusedApply, FusedGatherSlots):
    """As fused, with all that concerns rows before all that concerns tokens."""

    def gather_and_compute_slot_mappings(
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
        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping)
        arguments.check_rows(self.layout, num_reqs, num_reqs_padded)
        window, ptrs = self._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        num_rows, self.num_dirty_rows = self._rows_to_gather(num_reqs, num_reqs_padded, out)
        batch = (idx_mapping, query_start_loc, positions)
        slots = self._check_slots(num_reqs, *batch, num_tokens_padded, slots_out)
        launches.gather_slots(self, *batch, num_rows, window, ptrs, slots_out)
        return self._views(num_reqs_padded, out), slots
