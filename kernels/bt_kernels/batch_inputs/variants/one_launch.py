"""A whole step in one launch: staged writes, inputs, tables and slots."""

from __future__ import annotations

from bt_kernels.batch_inputs.fused import OneLaunchInputs


class Variant(OneLaunchInputs):
    """`OneLaunchInputs` without changes."""
