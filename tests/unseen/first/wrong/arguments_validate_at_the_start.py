"""Fault: validate is read when the tables are made, and not later.

Seen: set validate to true on tables that exist: a mapping with a row that does not exist is not
refused.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import TableLayout
from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Whether to validate is decided once."""

    def __init__(self, layout: TableLayout, device: torch.device | str, **options: object) -> None:
        super().__init__(layout, device, **options)
        self._validates = bool(self.validate)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "validate" and hasattr(self, "_validates"):
            value = self._validates
        super().__setattr__(name, value)
