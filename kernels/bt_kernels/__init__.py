"""Block-table kernels for LLM inference engines; needs torch, triton and numpy only.

`BlockTables` replaces vLLM's class of the same name, and `BatchInputs` prepares whole batches
beside it. Below them, `TableLayout` gives the sizes,
`bt_kernels.interface` the operations, and each file of `bt_kernels.variants` one implementation of
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bt_kernels.layout import PAD_SLOT_ID, TableLayout

if TYPE_CHECKING:
    from bt_kernels.engines import BatchInputs, BlockTables

__all__ = ["PAD_SLOT_ID", "BatchInputs", "BlockTables", "TableLayout"]


if not TYPE_CHECKING:  # or every misspelt name would have a type

    def __getattr__(name: str) -> type:
        """Import torch and triton only when a class that needs them is requested."""
        if name in ("BatchInputs", "BlockTables"):
            from bt_kernels import engines

            return getattr(engines, name)
        raise AttributeError(f"module 'bt_kernels' has no attribute {name!r}")
