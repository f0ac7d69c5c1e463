"""All inputs in one launch; launches of their own for staged writes, and for tables and slots."""

from __future__ import annotations

from bt_kernels.batch_inputs.fused import FusedInputs


class Variant(FusedInputs):
    """`FusedInputs` without changes."""
