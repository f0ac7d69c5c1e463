"""Stand-ins for the block tables of engines, and the plugin that puts them into vLLM.

vLLM loads the plugin in every process, in its front end too, so importing this package loads
neither torch nor Triton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bt_kernels.engines.plugin.counting import counters

if TYPE_CHECKING:
    from bt_kernels.engines.batches import BatchInputs
    from bt_kernels.engines.vllm import BlockTables
    from bt_kernels.engines.warming import register_warmup

__all__ = [
    "BatchInputs",
    "BlockTables",
    "counters",
    "register_warmup",
]


if not TYPE_CHECKING:  # or every misspelt name would have a type

    def __getattr__(name: str) -> object:
        """Import torch and Triton only when something that needs them is requested."""
        if name == "BatchInputs":
            from bt_kernels.engines.batches import BatchInputs

            return BatchInputs
        if name == "BlockTables":
            from bt_kernels.engines.vllm import BlockTables

            return BlockTables
        if name == "register_warmup":
            from bt_kernels.engines.warming import register_warmup

            return register_warmup
        raise AttributeError(f"module 'bt_kernels.engines' has no attribute {name!r}")
