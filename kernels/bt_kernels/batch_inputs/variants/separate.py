"""Separate operations of the device for each output, block tables and slots."""

from __future__ import annotations

from bt_kernels.batch_inputs.separate import SeparateInputs


class Variant(SeparateInputs):
    """`SeparateInputs` without changes."""
