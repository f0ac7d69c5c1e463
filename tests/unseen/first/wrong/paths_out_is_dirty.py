"""Fault: a gather into a caller's tables is counted as one into the input tables.

Seen: gather 4 requests, gather 1 with out, gather 1: input rows 1 to 3 are not zeroed;
num_dirty_rows changes in the second call.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """Counts the rows of every gather."""

    def _rows_to_gather(
        self, num_reqs: int, num_reqs_padded: int, out: Sequence[torch.Tensor] | None
    ) -> tuple[int, int]:
        num_rows, dirty = super()._rows_to_gather(num_reqs, num_reqs_padded, out)
        return num_rows, dirty if out is None else num_reqs
