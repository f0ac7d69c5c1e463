"""One packed copy and constant views; the kernels of separate."""

from __future__ import annotations

from bt_kernels.batch_inputs.staged_copy import StagedCopyInputs


class Variant(StagedCopyInputs):
    """`StagedCopyInputs` without changes."""
