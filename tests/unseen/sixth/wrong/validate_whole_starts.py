"""With validate, looks at all of query_start_loc, not only at its first R + 1 elements.

Shows with validate true and a query_start_loc longer than R + 1 whose rest decreases, as the buffer
of an engine has it after a larger batch: a legal call is refused.
"""

from __future__ import annotations

from bt_kernels.device_tables import arguments
from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Checks contents with three tensor operations in place of a loop over a list."""

    def _check_slots(self, num_reqs, idx_mapping, query_start_loc, positions, num_tokens, out):
        batch = (num_reqs, idx_mapping, query_start_loc, positions, num_tokens, out)
        if not self.validate or self.place.is_capturing():
            return super()._check_slots(*batch)
        self.validate = False
        try:
            views = super()._check_slots(*batch)
        finally:
            self.validate = True
        arguments.check_rows_exist(self.layout, idx_mapping)
        if int(query_start_loc[0]) != 0:
            raise ValueError(f"query_start_loc[0] is {int(query_start_loc[0])}; expected 0")
        falls = query_start_loc.diff() < 0
        if bool(falls.any()):
            index = int(falls.nonzero()[0]) + 1
            raise ValueError(f"query_start_loc[{index}] is below the one before")
        end = int(query_start_loc[num_reqs])
        room = self.slot_mappings.shape[1] if out is None else out.shape[1]
        limit = min(positions.numel(), room, num_tokens)
        if end > limit:
            raise ValueError(f"query_start_loc[{num_reqs}] is {end}; expected at most {limit}")
        return views
