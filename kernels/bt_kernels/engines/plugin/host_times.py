"""Host times of steps, in a histogram of constant size."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

_PER_OCTAVE = 16  # so that a quantile is at most 4.4 % too high


class HostTimes:
    """Durations of steps: their number, sum, maximum, and quantiles."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all durations."""
        self.steps = self.total_ns = self.max_ns = 0
        self._buckets: Counter[int] = Counter()

    def add(self, duration_ns: int) -> None:
        """Add a step."""
        self.steps += 1
        self.total_ns += duration_ns
        self.max_ns = max(self.max_ns, duration_ns)
        self._buckets[math.ceil(_PER_OCTAVE * math.log2(max(duration_ns, 1)))] += 1

    def add_all(self, steps: int, total_ns: int, max_ns: int, buckets: Mapping[int, int]) -> None:
        """Add steps that were counted elsewhere: in C, `launcher.step_times`."""
        self.steps += steps
        self.total_ns += total_ns
        self.max_ns = max(self.max_ns, max_ns)
        self._buckets.update(buckets)

    def merge(self, others: HostTimes) -> None:
        """Add the steps of another object."""
        self.add_all(others.steps, others.total_ns, others.max_ns, others._buckets)

    def summary(self) -> dict[str, float]:
        """Return `steps`, and in µs `mean`, `p50`, `p99` and `max`; empty without any step."""
        if not self.steps:
            return {}
        found = {
            "mean": self.total_ns / self.steps,
            "p50": self._quantile_ns(0.5),
            "p99": self._quantile_ns(0.99),
            "max": self.max_ns,
        }
        return {"steps": self.steps, **{name: round(ns / 1000, 2) for name, ns in found.items()}}

    def _quantile_ns(self, share: float) -> float:
        """Return the upper end of the bucket that a quantile is in."""
        left = math.ceil(share * self.steps)
        for bucket, count in sorted(self._buckets.items()):
            left -= count
            if left <= 0:
                return min(2 ** (bucket / _PER_OCTAVE), self.max_ns)
        raise AssertionError("the buckets have all steps")
