"""Measures and compares kernels of a few microseconds; block tables are its first suite.

The API is imported when one of its names is first used, since `import bt_bench` must be fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

_ROOMS = {
    "bt_bench.api": ["Case", "Comparison", "Run", "Samples", "compare", "load", "sweep"],
    "bt_bench.analysis": ["Judgement", "Overall", "Verdict"],
    "bt_bench.functions": ["Bench", "Benchmark", "bench", "benchmark"],
}
"""The names of the API, by the subpackage that has them."""

if TYPE_CHECKING:
    from bt_bench import errors as errors
    from bt_bench.analysis import Judgement as Judgement
    from bt_bench.analysis import Overall as Overall
    from bt_bench.analysis import Verdict as Verdict
    from bt_bench.api import Case as Case
    from bt_bench.api import Comparison as Comparison
    from bt_bench.api import Run as Run
    from bt_bench.api import Samples as Samples
    from bt_bench.api import compare as compare
    from bt_bench.api import load as load
    from bt_bench.api import sweep as sweep
    from bt_bench.functions import Bench as Bench
    from bt_bench.functions import Benchmark as Benchmark
    from bt_bench.functions import bench as bench
    from bt_bench.functions import benchmark as benchmark
else:

    def __getattr__(name: str) -> object:
        """Import a name of the API when it is first used."""
        from importlib import import_module

        if name == "errors":
            return import_module("bt_bench.errors")
        for room, names in _ROOMS.items():
            if name in names:
                globals()[name] = found = getattr(import_module(room), name)
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """List the names of the API, imported or not."""
        return sorted(
            {*globals(), "errors", *(name for names in _ROOMS.values() for name in names)}
        )
