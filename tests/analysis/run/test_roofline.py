"""What bounds the device time of a step."""

from __future__ import annotations

import pytest
from support.factories import make_calibration, make_case, make_required

from bt_bench.analysis.run.roofline import Binds, Roofline, roofline
from bt_bench.results.run.calibration import Calibration, PlainCopies
from bt_bench.results.run.case import CaseResult
from bt_bench.results.run.nouns import Quantity

NULL_US = 0.5
COPIES = PlainCopies(moved_bytes=[1000, 10_000, 100_000], samples=[[0.75, 0.7, 0.8], [1.5], [15.0]])


def calibration(copies: PlainCopies | None = COPIES, **figures: list[float]) -> Calibration:
    taken = {"null_gpu": [0.4, NULL_US, 0.9], "null_step": [12.0]} | figures
    return make_calibration(taken, copies=copies)


def case_of(*moved: int, gpu_us: float | None = 3.0, step_us: float = 24.0) -> CaseResult:
    """A case that takes a multiple of `gpu_us` in each step: of one, two, three."""
    samples = {Quantity.STEP_US: [[step_us] * len(moved)]}
    if gpu_us is not None:
        samples[Quantity.GPU_US] = [[gpu_us * (place + 1) for place in range(len(moved))]]
    return make_case(samples=samples, workload=make_required(*moved), num_steps=len(moved))


def found(*moved: int, **options: float | None) -> Roofline:
    line = roofline(case_of(*moved, **options), calibration())  # type: ignore[arg-type]
    assert line is not None
    return line


def test_few_bytes_are_bound_by_the_launch() -> None:
    line = found(1000)
    assert (line.read_bytes, line.written_bytes, line.required_bytes) == (500, 500, 1000)
    assert (line.launch_us, line.bytes_us, line.bound_us) == (0.5, pytest.approx(0.25), 0.75)
    assert line.binds is Binds.LAUNCH
    assert line.times_bound == pytest.approx(4.0)
    assert line.gb_per_s == pytest.approx(1000 / 3.0 / 1e3)
    assert (line.step_us, line.null_step_us) == (24.0, 12.0)


def test_many_bytes_bind_and_the_bound_is_the_plain_copy() -> None:
    line = found(100_000, gpu_us=30.0)
    assert line.binds is Binds.BYTES
    assert (line.bytes_us, line.bound_us, line.times_bound) == (14.5, 15.0, 2.0)


def test_a_window_has_means_over_its_steps() -> None:
    """The steps take 3 and 6 µs; a copy of the one takes 0.75 µs, of the other 15."""
    line = found(1000, 100_000)
    assert line.required_bytes == 50_500
    assert line.gpu_us == pytest.approx(4.5)
    assert line.bytes_us == pytest.approx((0.25 + 14.5) / 2)
    assert line.bound_us == pytest.approx((0.75 + 15.0) / 2)
    assert line.gb_per_s == pytest.approx(101_000 / 9.0 / 1e3)


def test_a_step_that_must_move_nothing_needs_no_launch() -> None:
    line = found(0)
    assert (line.launch_us, line.bytes_us, line.bound_us) == (0.0, 0.0, 0.0)
    assert (line.binds, line.times_bound, line.gb_per_s) == (None, None, 0.0)
    line = found(0, 1000)
    assert (line.launch_us, line.bytes_us) == (0.25, pytest.approx(0.125))
    assert line.binds is Binds.LAUNCH


def test_a_copy_is_never_below_an_empty_kernel() -> None:
    slow = calibration(null_gpu=[2.0])
    line = roofline(case_of(1000), slow)
    assert (line.launch_us, line.bytes_us, line.binds) == (2.0, 0.0, Binds.LAUNCH)


@pytest.mark.parametrize(
    "known", [None, calibration(copies=None), calibration(null_gpu=[]), make_calibration()]
)
def test_without_a_calibration_of_both_there_is_no_bound(known: Calibration | None) -> None:
    line = roofline(case_of(1000), known)
    assert (line.bound_us, line.binds, line.times_bound) == (None, None, None)
    assert line.gb_per_s == pytest.approx(1 / 3)


def test_without_a_device_time_there_is_no_rate() -> None:
    line = found(1000, gpu_us=None)
    assert (line.gpu_us, line.gb_per_s, line.times_bound) == (None, None, None)
    assert line.bound_us == 0.75


def test_what_must_move_may_not_be_known() -> None:
    assert roofline(make_case(samples={Quantity.GPU_US: [[3.0]]}), calibration()) is None
