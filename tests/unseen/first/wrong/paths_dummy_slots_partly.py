"""Fault: get_dummy_slot_mappings pads only the slots that it returns.

Seen: after a step, get_dummy_slot_mappings(2) leaves slots from 2 on.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables, arguments
from bt_kernels.layout import PAD_SLOT_ID


class Variant(DeviceBlockTables):
    """Pads what is read."""

    def get_dummy_slot_mappings(self, num_tokens: int) -> torch.Tensor:
        limit = self.layout.max_num_batched_tokens
        arguments.check_size("num_tokens", num_tokens, limit, "max_num_batched_tokens")
        views = self._views_of_slots(num_tokens)
        views.fill_(PAD_SLOT_ID)
        return views
