"""The preparation of a whole batch: input buffers, logits, block tables and slots of a step.

`interface` defines the operations and their results, `buffers` the tensors that an engine owns,
`layout` the sizes. Each file of `variants` is one implementation.
"""

from __future__ import annotations

from bt_kernels.batch_inputs.buffers import InputBuffers, RequestTensors
from bt_kernels.batch_inputs.interface import (
    NEW,
    PERSISTENT,
    BatchInputOperations,
    PreparedBatch,
)
from bt_kernels.batch_inputs.layout import DRAFTS, FEATURES, LOOKAHEAD, NO_BONUS, InputLayout

__all__ = [
    "DRAFTS",
    "FEATURES",
    "LOOKAHEAD",
    "NEW",
    "NO_BONUS",
    "PERSISTENT",
    "BatchInputOperations",
    "InputBuffers",
    "InputLayout",
    "PreparedBatch",
    "RequestTensors",
]
