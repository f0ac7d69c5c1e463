"""Time plain copies on the device, in µs by bytes: the bound that no step can beat.

    python studies/worst_copy.py --out copy.json

A step that must read r bytes and write w is compared with `destination.copy_(source)` of
(r + w) / 2 bytes, which reads and writes as many in all. As with `gpu_us`, the profiler times the
copy's device operations, on an idle device and with a hot L2 cache. This script takes more samples
than a sweep's calibration, and of larger sizes. Needs a GPU, and takes seconds.
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

# Bytes read and written together: from an almost empty step to more than any table here needs.
MOVED_BYTES = tuple(2**power for power in range(10, 30))
TIMES = 30  # timed copies of each size, after warm-up


def read_copy(path: Path) -> PlainCopy:
    """Read the copies that `measure` returned from a file.

    Raises:
        UsageError: for a file that is missing or has other contents.
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
    """Time copies on the GPU; return a document for `read_copy`.

    Raises:
        UsageError: if there is no GPU, or samples are missing.
    """
    from bt_bench.worker.machine.device import choose_device

    choose_device("cuda")  # has to run before torch is imported

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
    """Return sizes in bytes, with median times in µs.

    Raises:
        UsageError: if samples are missing.
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
    """Measure, and write the file."""
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
