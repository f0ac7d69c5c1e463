"""Stand-ins for the block tables of engines."""

from __future__ import annotations

from bt_kernels.engines.vllm import BlockTables

__all__ = [
    "BlockTables",
]
