"""Times of plain copies on the device: lower bounds for steps that must move as many bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from bt_bench.results import PlainCopies
from bt_bench.worker.measuring.ports import Call
from bt_bench.worker.measuring.profiler_session import DeviceActivity, profiler_session

# Bytes read and written together: from almost nothing to an amount that few tables come near.
MOVED_BYTES = tuple(2**power for power in range(10, 29))
WARM = 5  # copies of each size before those that count
ATTEMPTS = 3
SHARE_OF_FREE = 4  # at most a quarter of the free memory is used

Profile = Callable[[Sequence[Call]], list[list[DeviceActivity]]]
"""A function that makes calls under a profiler and returns the device activities of each."""


class PlainCopier:
    """A function that enqueues `destination.copy_(source)`.

    Args:
        largest_bytes: the most that a copy reads and writes together.
        device: where both tensors are.
    """

    def __init__(self, largest_bytes: int, device: str = "cuda") -> None:
        self._source = torch.zeros(largest_bytes // 2, dtype=torch.uint8, device=device)
        self._destination = torch.zeros_like(self._source)

    def __call__(self, moved_bytes: int) -> None:
        """Enqueue a copy that reads half of `moved_bytes` and writes the other half."""
        half = moved_bytes // 2
        self._destination[:half].copy_(self._source[:half])


def affordable_sizes(free_bytes: int) -> tuple[int, ...]:
    """Return the sizes in `MOVED_BYTES` that need at most a quarter of the free memory."""
    return tuple(moved for moved in MOVED_BYTES if moved <= free_bytes // SHARE_OF_FREE)


def profile_calls(synchronize: Call, calls: Sequence[Call]) -> list[list[DeviceActivity]]:
    """Make calls under torch's profiler, each on an idle device.

    Args:
        synchronize: waits until the device is idle.
        calls: made one after the other.

    Returns:
        The device activities of each call; none where the profiler dropped them.
    """
    with profiler_session(synchronize) as session:
        for call in calls:
            session.run(call)
    return session.recorded().by_range(len(calls))


def time_copies(
    copy: Callable[[int], object], profile: Profile, sizes: Sequence[int], times: int
) -> PlainCopies:
    """Time copies by the profiler. Equal sizes run in a row, which leaves their data in the L2.

    Args:
        copy: enqueues a copy that moves a number of bytes.
        profile: makes calls under a profiler.
        sizes: bytes that are read and written together, rising.
        times: samples of each size.

    Returns:
        Their device times in µs. Where the profiler dropped records in every attempt, a size has
        fewer samples, and a size without any is left out.
    """
    calls = [partial(copy, moved) for moved in sizes for _ in range(WARM + times)]
    found: list[list[DeviceActivity]] = []
    for _ in range(ATTEMPTS):
        found = profile(calls)
        if all(found):
            break
    samples: dict[int, list[float]] = {}
    for index, moved in enumerate(sizes):
        end = (index + 1) * (WARM + times)
        taken = [activities for activities in found[end - times : end] if activities]
        if taken:
            samples[moved] = [sum(each.duration_ns for each in of) / 1e3 for of in taken]
    return PlainCopies(moved_bytes=[*samples], samples=[*samples.values()])
