"""The preparation of a whole batch: input buffers, logits, block tables and slots of a step.

`interface` defines the operations and their results, `buffers` the tensors that an engine owns,
`layout` the sizes. Each file of `variants` is one implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bt_kernels.batch_inputs.layout import DRAFTS, FEATURES, LOOKAHEAD, NO_BONUS, InputLayout

if TYPE_CHECKING:
    from bt_kernels.batch_inputs.buffers import InputBuffers, RequestTensors
    from bt_kernels.batch_inputs.interface import (
        NEW,
        PERSISTENT,
        BatchInputOperations,
        PreparedBatch,
    )

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


if not TYPE_CHECKING:  # or every misspelt name would have a type

    def __getattr__(name: str) -> Any:
        """Import torch only when a name is requested that needs it."""
        if name in __all__:
            from bt_kernels.batch_inputs import buffers, interface

            return getattr(buffers if hasattr(buffers, name) else interface, name)
        raise AttributeError(f"module 'bt_kernels.batch_inputs' has no attribute {name!r}")
