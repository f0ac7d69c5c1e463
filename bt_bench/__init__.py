"""Measures and compares kernels of a few microseconds; block tables are its first suite."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bt_bench.functions import Bench, Benchmark, bench, benchmark

__version__ = "0.1.0"

_HOMES = {
    "Bench": "bt_bench.functions",
    "Benchmark": "bt_bench.functions",
    "bench": "bt_bench.functions",
    "benchmark": "bt_bench.functions",
}
"""The module that defines each exported name, which is imported when the name is first used."""

__all__ = ["Bench", "Benchmark", "bench", "benchmark"]


def __getattr__(name: str) -> Any:
    """Import an exported name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
