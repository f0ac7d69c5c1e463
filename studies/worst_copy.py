"""Time plain copies on the device, in µs by bytes: the bound that no step can beat.

    python studies/worst_copy.py --out copy.json

A step that must read r bytes and write w is set against `destination.copy_(source)` of (r + w) / 2
bytes, which reads and writes as many in all. Times are those of the copy's device operations by the
profiler, as `gpu_us` is, on an idle device, and with all in the L2 cache that it can hold. It takes
more samples than the calibration of a sweep does, of larger sizes too. Needs a GPU, and seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bt_bench.analysis import PlainCopy, median
from bt_bench.base.errors import UsageError
from bt_bench.results import PlainCopies

# Read and written together: of a step with next to nothing, up to what no table here comes near.
MOVED_BYTES = tuple(2**power for power in range(10, 30))
TIMES = 30  # that each is copied, after some for nothing


def read_copy(path: Path) -> PlainCopy:
    """The copies of a file, as `measure` gives it.

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
    return PlainCopy(points, source)


def measure() -> dict[str, Any]:
    """Times copies on the GPU; what `read_copy` reads.

    Raises:
        UsageError: where there is no GPU, or samples are missing.
    """
    from bt_bench.worker.machine.device import choose_device

    choose_device("cuda")  # before torch is imported, as it says

    import torch

    from bt_bench.worker.measuring.calibration.copies import (
        PlainCopier,
        profile_calls,
        time_copies,
    )

    profile = partial(profile_calls, torch.cuda.synchronize)
    copies = time_copies(PlainCopier(MOVED_BYTES[-1]), profile, MOVED_BYTES, TIMES)
    name = torch.cuda.get_device_name()
    return {"source": f"as measured on one {name}", "points": complete_points(copies)}


def complete_points(copies: PlainCopies) -> list[tuple[int, float]]:
    """Sizes and median times.

    Raises:
        UsageError: where samples are missing.
    """
    taken = dict(zip(copies.moved_bytes, copies.samples, strict=True))
    lost = [size for size in MOVED_BYTES if len(taken.get(size, ())) < TIMES]
    if lost:
        raise UsageError(
            f"the profiler dropped records of copies that move {lost} bytes in every attempt; try "
            "again"
        )
    return [(size, median(samples)) for size, samples in taken.items()]


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
