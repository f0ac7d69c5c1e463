"""What a plain copy of so many bytes takes on the device, in us: the bound that no step can beat.

    python benchmarks/worst_copy.py --out copy.json

A step that must read r bytes and write w is set against `destination.copy_(source)` of (r + w) / 2
bytes, which reads and writes as many in all. Times are those of the copy's device operations by the
profiler, as `gpu_us` is, on an idle device, and with all in the L2 cache that it can hold. Between
two measured sizes the logarithms are interpolated; below the smallest a copy takes as long as that,
and above the largest in proportion. Needs a GPU, and seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bt_bench.analysis import median
from bt_bench.errors import UsageError

# Read and written together: of a step with next to nothing, up to what no table here comes near.
MOVED_BYTES = tuple(2**power for power in range(10, 30))
TIMES = 30  # that each is copied, after some for nothing
WARM = 5
ATTEMPTS = 3


@dataclass(frozen=True)
class PlainCopy:
    """How long copies take.

    Args:
        points: bytes read and written together, rising, and us.
        source: how that is known, a clause.
    """

    points: tuple[tuple[int, float], ...]
    source: str

    @classmethod
    def of_bandwidth(cls, gb_per_s: float) -> PlainCopy:
        """Copies at a constant rate of bytes read and written together."""
        one = 1_000_000
        return cls(((0, 0.0), (one, one / gb_per_s / 1e3)), f"{gb_per_s:g} GB/s, as given")

    @classmethod
    def read(cls, path: Path) -> PlainCopy:
        """That of a file, as `measure` gives it.

        Raises:
            UsageError: for a file that is not one.
        """
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            points = tuple((int(size), float(us)) for size, us in stored["points"])
            source = str(stored["source"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}: {error!r}; expected what worst_copy.py writes") from error
        if len(points) < 2 or any(us <= 0 for _, us in points) or sorted(points) != list(points):
            raise UsageError(f"{path}: points are {points}; expected two or more, rising sizes")
        return cls(points, source)

    def us(self, moved_bytes: int) -> float:
        """How long a copy takes that reads and writes so many bytes together."""
        sizes = [size for size, _ in self.points]
        times = [us for _, us in self.points]
        if moved_bytes >= sizes[-1] or not sizes[0]:  # from 0 on it is at a constant rate
            return times[-1] * moved_bytes / sizes[-1]
        if moved_bytes <= sizes[0]:
            return times[0]
        at = math.log(moved_bytes)
        return math.exp(np.interp(at, np.log(sizes), np.log(times)))


def measure() -> dict[str, Any]:
    """Times copies on the GPU; what `PlainCopy.read` reads.

    Raises:
        UsageError: where there is no GPU.
    """
    from bt_bench.worker.device import choose_device

    choose_device("cuda")  # before torch is imported, as it says

    import torch

    largest = torch.zeros(MOVED_BYTES[-1] // 2, dtype=torch.uint8, device="cuda")
    target = torch.zeros_like(largest)
    calls = [
        partial(target[: moved // 2].copy_, largest[: moved // 2])
        for moved in MOVED_BYTES
        for _ in range(WARM + TIMES)
    ]
    times = _device_times(calls, torch.cuda.synchronize)
    points = []
    for index, moved in enumerate(MOVED_BYTES):
        begin = index * (WARM + TIMES) + WARM
        points.append((moved, median(times[begin : begin + TIMES])))
    name = torch.cuda.get_device_name()
    return {"source": f"as measured on one {name}", "points": points}


def _device_times(
    calls: Sequence[Callable[[], object]], synchronize: Callable[[], object]
) -> list[float]:
    """The device time of each call, in us."""
    from bt_bench.worker.measuring.profiler_session import profiler_session

    for _ in range(ATTEMPTS):  # it drops records now and then
        with profiler_session(synchronize) as session:
            for call in calls:
                session.run(call)
        by_range = session.recorded().by_range(len(calls))
        if all(by_range):
            return [sum(each.duration_ns for each in of_call) / 1e3 for of_call in by_range]
    raise UsageError(f"the profiler dropped records of copies {ATTEMPTS} times; try again")


def main() -> int:
    """Measures, and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    try:
        found: Mapping[str, Any] = measure()
    except UsageError as error:
        sys.exit(str(error))
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
