"""The time of a plain copy on the device, by its number of bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bt_bench.analysis.statistics.samples import median
from bt_bench.results import PlainCopies


@dataclass(frozen=True)
class PlainCopy:
    """The times of copies: `destination.copy_(source)`, with half the bytes that it moves.

    Between two measured sizes, the logarithms are interpolated. Below the smallest size, a copy
    takes as long as that one; above the largest, its time grows in proportion.

    Args:
        points: bytes read and written together, rising, and µs.
        source: the origin of the points, a clause.
    """

    points: tuple[tuple[int, float], ...]
    source: str

    @classmethod
    def of_bandwidth(cls, gb_per_s: float) -> PlainCopy:
        """Return copies at a constant rate of bytes read and written together."""
        one = 1_000_000
        return cls(((0, 0.0), (one, one / gb_per_s / 1e3)), f"{gb_per_s:g} GB/s, as given")

    @classmethod
    def measured(cls, copies: PlainCopies | None) -> PlainCopy | None:
        """Return the medians of a calibration's copies; `None` unless it took two sizes."""
        if copies is None:
            return None
        medians = (
            (size, median(samples))
            for size, samples in zip(copies.moved_bytes, copies.samples, strict=True)
            if samples
        )
        points = tuple((size, us) for size, us in medians if us > 0)
        return cls(points, "as calibrated in the run") if len(points) > 1 else None

    def us(self, moved_bytes: int) -> float:
        """Return the time of a copy that reads and writes so many bytes together, in µs."""
        sizes = [size for size, _ in self.points]
        times = [us for _, us in self.points]
        if moved_bytes >= sizes[-1] or not sizes[0]:  # points from 0 on have a constant rate
            return times[-1] * moved_bytes / sizes[-1]
        if moved_bytes <= sizes[0]:
            return times[0]
        at = math.log(moved_bytes)
        return math.exp(np.interp(at, np.log(sizes), np.log(times)))
