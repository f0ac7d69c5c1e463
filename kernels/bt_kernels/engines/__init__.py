"""Stand-ins for the block tables of engines."""

from __future__ import annotations

from bt_kernels.engines.vllm import BlockTables
from bt_kernels.engines.warming import register_warmup

__all__ = [
    "BlockTables",
    "register_warmup",
]
