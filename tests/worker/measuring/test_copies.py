"""Plain copies are timed by size, and dropped records are taken again or left out."""

from __future__ import annotations

import pytest
import torch

from bt_bench.worker.measuring.calibration.copies import (
    ATTEMPTS,
    MOVED_BYTES,
    WARM,
    PlainCopier,
    affordable_sizes,
    time_copies,
)
from bt_bench.worker.measuring.profiler_session import DeviceActivity

TIMES = 3


class ScriptedProfiler:
    """A copy takes a ns per byte, and the first ones of a size longer.

    Args:
        drops: per session, the indices of the calls whose records are dropped.
    """

    def __init__(self, *drops):
        self.drops = list(drops)
        self.sessions = []
        self._moved = []

    def copy(self, moved):
        self._moved.append(moved)

    def __call__(self, calls):
        dropped = self.drops.pop(0) if self.drops else ()
        self._moved = []
        for call in calls:
            call()
        self.sessions.append(self._moved)
        seen, found = {}, []
        for index, moved in enumerate(self._moved):
            seen[moved] = seen.get(moved, 0) + 1
            duration_ns = moved if seen[moved] > WARM else 10 * moved
            activity = DeviceActivity("copy", "Memcpy DtoD", 0, duration_ns)
            found.append([] if index in dropped else [activity])
        return found


def timed(profiler, sizes=(1000, 2000)):
    return time_copies(profiler.copy, profiler, sizes, TIMES)


def test_copies_of_a_size_follow_each_other_and_the_first_do_not_count():
    profiler = ScriptedProfiler()
    copies = timed(profiler)
    assert profiler.sessions == [[1000] * (WARM + TIMES) + [2000] * (WARM + TIMES)]
    assert copies.moved_bytes == [1000, 2000]
    assert copies.samples == [[1.0] * TIMES, [2.0] * TIMES]


def test_a_copy_of_several_activities_takes_as_long_as_all_of_them():
    half = DeviceActivity("copy", "Memcpy DtoD", 0, 500)
    copies = time_copies(lambda moved: None, lambda calls: [[half, half]] * len(calls), [1000], 2)
    assert copies.samples == [[1.0, 1.0]]


def test_dropped_records_are_taken_again():
    profiler = ScriptedProfiler([0], [WARM])
    assert timed(profiler).samples == [[1.0] * TIMES, [2.0] * TIMES]
    assert len(profiler.sessions) == 3


def test_what_is_dropped_every_time_is_left_out():
    all_of_first = range(WARM, WARM + TIMES)
    profiler = ScriptedProfiler(*[[*all_of_first, 2 * WARM + TIMES]] * ATTEMPTS)
    copies = timed(profiler)
    assert len(profiler.sessions) == ATTEMPTS
    assert copies.moved_bytes == [2000]
    assert copies.samples == [[2.0] * (TIMES - 1)]


def test_no_sizes_are_no_copies():
    assert timed(ScriptedProfiler(), sizes=()).moved_bytes == []


@pytest.mark.parametrize(("free", "largest"), [(1 << 40, 1 << 28), (1 << 20, 1 << 18), (1000, 0)])
def test_sizes_need_a_quarter_of_the_free_memory_at_most(free, largest):
    sizes = affordable_sizes(free)
    assert max(sizes, default=0) == largest
    assert sizes == MOVED_BYTES[: len(sizes)]


def test_the_copier_reads_half_and_writes_the_other_half():
    copier = PlainCopier(64, device="cpu")
    copier._source[:] = torch.arange(32)
    copier(16)
    assert copier._destination.tolist() == [*range(8), *[0] * 24]
