"""Times of plain copies at, between and beyond the sizes that were measured."""

from __future__ import annotations

import pytest

from bt_bench.analysis.plain_copy import PlainCopy
from bt_bench.results.run.calibration import PlainCopies


def test_between_and_beyond_what_was_measured() -> None:
    copy = PlainCopy(((1024, 1.0), (4096, 4.0), (8192, 4.0)), "here")
    times = [copy.us(size) for size in (0, 1024, 2048, 4096, 6000, 8192, 16384)]
    assert times == pytest.approx([1, 1, 2, 4, 4, 4, 8])


def test_at_a_given_rate() -> None:
    copy = PlainCopy.of_bandwidth(2000)
    assert [copy.us(size) for size in (0, 2_000_000, 4_000)] == pytest.approx([0, 1, 0.002])
    assert copy.source == "2000 GB/s, as given"


def test_a_calibration_gives_medians() -> None:
    copies = PlainCopies(moved_bytes=[10, 20, 40], samples=[[1.0, 9.0, 2.0], [], [3.0]])
    copy = PlainCopy.measured(copies)
    assert copy.points == ((10, 2.0), (40, 3.0))


@pytest.mark.parametrize(
    "copies",
    [
        None,
        PlainCopies(moved_bytes=[], samples=[]),
        PlainCopies(moved_bytes=[10], samples=[[1.0]]),
        # A time of zero has no logarithm.
        PlainCopies(moved_bytes=[10, 20], samples=[[0.0], [1.0]]),
    ],
)
def test_fewer_than_two_sizes_are_no_curve(copies: PlainCopies | None) -> None:
    assert PlainCopy.measured(copies) is None
