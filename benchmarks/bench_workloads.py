"""Seconds and memory to build the step sequence of each whole Azure trace.

Run with `python benchmarks/bench_workloads.py`. Each case has a process of its own, so that its
peak memory is its own, the interpreter and imports included.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from typing import Any

from bt_bench.suites.block_tables.workloads import TraceParameters
from bt_bench.suites.block_tables.workloads.serving.scheduler import Scheduler, iterate_steps

CASES: dict[str, dict[str, Any]] = {
    "conv": {"trace": "azure_conv"},
    "conv, 7 groups": {"trace": "azure_conv", "model": "gemma-3-27b"},
    "conv, 4 groups of 2 block sizes": {"trace": "azure_conv", "model": "qwen3-next-80b"},
    "conv, 20 × rate, 7 groups": {
        "trace": "azure_conv",
        "rate": 20.0,
        "model": "gemma-3-27b",
        "max_model_len": 131_072,
    },
    "conv, 20 × rate, pool runs out": {"trace": "azure_conv", "rate": 20.0, "num_blocks": 4_000},
    "code": {"trace": "azure_code"},
    "code, 7 groups": {"trace": "azure_code", "model": "gemma-3-27b"},
}
UNITS_PER_MIB = 1 << 20 if sys.platform == "darwin" else 1 << 10


def build_all_steps(changes: dict[str, Any]) -> str:
    """Builds every step of a trace, keeps none, and says what it took."""
    start = time.perf_counter()
    num_steps = sum(1 for _ in iterate_steps(Scheduler(_parameters(changes))))
    return f"{num_steps:>9,} steps {_cost_since(start)}"


def describe_all_steps(changes: dict[str, Any]) -> str:
    """Describes a trace, its busiest window included: two passes at most."""
    start = time.perf_counter()
    description = _parameters(changes | {"window": {"at": "busiest"}}).describe()
    return f"{description.steps.num_steps:>9,} steps {_cost_since(start)}"


def _parameters(changes: dict[str, Any]) -> TraceParameters:
    return TraceParameters.model_validate({"workload": "trace"} | changes)


def _cost_since(start: float) -> str:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / UNITS_PER_MIB
    return f"{time.perf_counter() - start:>8.2f} s {peak:>8.0f} MiB"


def main() -> None:
    """Runs all cases."""
    spawn = multiprocessing.get_context("spawn")
    for title, function in (("build", build_all_steps), ("describe", describe_all_steps)):
        for name, changes in CASES.items():
            with spawn.Pool(1) as pool:
                line = pool.apply(function, (changes,))
            sys.stdout.write(f"{title:<9}{name:<34}{line}\n")


if __name__ == "__main__":
    main()
