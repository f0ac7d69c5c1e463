"""Fault: with validate, a query_start_loc that decreases in the middle is accepted if it ends
where it should.

Seen: with validate=True, [0, 2, 1, 3] is accepted; a ValueError is to be raised.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables, arguments


class Variant(DeviceBlockTables):
    """Looks at both ends."""

    def _check_slots(
        self,
        num_reqs: int,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None,
    ) -> torch.Tensor:
        validate, self.validate = self.validate, False
        try:
            views = super()._check_slots(
                num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, out
            )
        finally:
            self.validate = validate
        if validate and not self.place.is_capturing():
            ends = query_start_loc[[0, num_reqs]] if num_reqs else query_start_loc[:1]
            slots = self.slot_mappings if out is None else out
            arguments.check_rows_exist(self.layout, idx_mapping)
            arguments.check_token_ranges(len(ends) - 1, ends, positions, slots.shape[1])
            inner = query_start_loc[: num_reqs + 1]
            if bool(((inner < 0) | (inner > positions.numel())).any()):
                raise ValueError("query_start_loc ends past positions; expected a smaller number")
        return views
