"""Benchmarks made of functions: a suite in one Python file, or callables timed in this process."""

from __future__ import annotations

from bt_bench.functions.declared import Benchmark, benchmark
from bt_bench.functions.in_process import Bench, bench
