"""The host cost of NVTX ranges, under a profiling tool or without one.

    python studies/nvtx_cost.py

Needs no GPU. Figures are in ns per sample of a sweep: the best of 20 batches, less an empty loop.
None of this cost lies in a sweep's timed calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import nvtx

from bt_bench.base import no_collection
from bt_bench.worker.machine.environment import read_environment
from bt_bench.worker.measuring.nvtx_ranges import DOMAIN, Range, SampleRanges

BATCHES, CALLS = 20, 20_000


def costs_ns() -> dict[str, float]:
    """Return the cost of each part in ns, by its description."""
    timed, ranges = Range("variant", "step", "case"), SampleRanges("variant", "step", "case")

    def push_and_pop() -> None:
        timed.push()
        timed.pop()

    def sample() -> None:
        operation = ranges.begin(1)
        operation.push()
        operation.pop()
        ranges.end()

    parts = {
        "push and pop of the timed part": push_and_pop,
        "setting the step": lambda: timed.at(1),
        "all ranges of a sample": sample,
    }
    with no_collection():
        empty = _best_ns(lambda: None)
        return {name: _best_ns(part) - empty for name, part in parts.items()}


def _best_ns(call: Callable[[], object]) -> float:
    """Return the least time per call over all batches in ns, including the loop's overhead."""
    best = float("inf")
    for _ in range(BATCHES):
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        best = min(best, (time.perf_counter_ns() - start) / CALLS)
    return best


def main() -> None:
    environment = read_environment("cpu")
    attached = type(nvtx.get_domain(DOMAIN)).__name__ == "Domain"
    print(f"{environment.cpu}, Python {environment.python}; {'a' if attached else 'no'} tool")
    for name, cost in costs_ns().items():
        print(f"{name:32} {cost:6.0f} ns")


if __name__ == "__main__":
    main()
