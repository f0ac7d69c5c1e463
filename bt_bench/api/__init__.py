"""The Python API: results of runs as objects, their comparison, and sweeps from Python.

`bt_bench` exports these names, and imports this subpackage when one of them is first used.
"""

from __future__ import annotations

from bt_bench.api.comparing import Comparison, compare
from bt_bench.api.reading import Case, Run, Samples, load
from bt_bench.api.sweeping import sweep
