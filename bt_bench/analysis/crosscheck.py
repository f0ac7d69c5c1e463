"""Cross-checks of device times by two independent methods.

Each method adds a constant, its intercept, which the calibration measures with kernels of known
length. The intercept is subtracted before the methods are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from bt_bench.analysis.figures import method_line, typical_us
from bt_bench.analysis.statistics.samples import median
from bt_bench.results import (
    Cache,
    Calibration,
    CaseResult,
    LaunchPath,
    Load,
    Method,
    Quantity,
    Series,
    series_of,
)

TOLERANCE_PERCENT = 10.0
TOLERANCE_US = 1.0

_SPANS = [
    (
        series_of(Quantity.EVENT_US, load=Load.BUSY, l2=l2),
        series_of(Quantity.SPAN_US, load=Load.BUSY, l2=l2),
    )
    for l2 in Cache
]
_BUSY_TIMES = (
    series_of(Quantity.GPU_US, method=Method.GRAPH_SLOPE, launch_path=LaunchPath.GRAPH),
    series_of(Quantity.GPU_US),
)


@dataclass(frozen=True)
class Reading:
    """The result of one method.

    Args:
        series: the measured quantity, and the way it was measured.
        reported_us: typical value of its samples.
        intercept_us: the time that the method adds; `None` where it was not calibrated.
    """

    series: Series
    reported_us: float
    intercept_us: float | None

    @property
    def corrected_us(self) -> float | None:
        """Return the reported time without the intercept."""
        return None if self.intercept_us is None else self.reported_us - self.intercept_us


@dataclass(frozen=True)
class Crosscheck:
    """Two readings of the same device time.

    Args:
        first: the reading that is checked.
        second: the reading that it is checked against.
        may_be_less: whether the first is of a warmer L2, and so may be less by any amount, as long
            as it is more than its intercept.
    """

    first: Reading
    second: Reading
    may_be_less: bool = False

    @property
    def difference_us(self) -> float | None:
        """Return first minus second, without intercepts; `None` if one is unknown."""
        first, second = self.first.corrected_us, self.second.corrected_us
        return None if first is None or second is None else first - second

    @property
    def tolerance_us(self) -> float | None:
        """Return the allowed difference: `TOLERANCE_PERCENT` of the larger, or `TOLERANCE_US`."""
        first, second = self.first.corrected_us, self.second.corrected_us
        if first is None or second is None:
            return None
        return max(TOLERANCE_US, TOLERANCE_PERCENT / 100 * max(first, second))

    @property
    def agrees(self) -> bool | None:
        """Return whether they are within the tolerance; `None` where an intercept is unknown."""
        difference, tolerance = self.difference_us, self.tolerance_us
        if difference is None or tolerance is None:
            return None
        is_plausible = self.may_be_less and (self.first.corrected_us or 0.0) > 0
        return difference <= tolerance and (is_plausible or difference >= -tolerance)


def crosschecks(case: CaseResult, calibration: Calibration | None) -> tuple[Crosscheck, ...]:
    """Return all pairs of methods that a case has; none where it launches nothing.

    - The event pair behind a queue against the span by the profiler, with the same L2. Each has its
      intercept once, however many kernels there are between first start and last end.
    - The slope of graphs against the busy time by the profiler: both have their intercept once per
      device operation. A replay finds the L2 as the last replay left it, a profiled step as all
      arms left it. With tables larger than the L2 the slope was 3.8 of 7.3 µs less, and 0.7 µs
      less with fewer tables, on an H200; so only a slope that is more contradicts the profiler.

    The intercepts apply to kernels only. A method adds another, unknown time to a copy: a graph may
    wait some 10 µs between a copy from the host and the kernel behind it, which the profiler does
    not count. So the intercepts are unknown where a step has a copy or a memset.

    Args:
        case: of any arm.
        calibration: of the run.
    """
    return crosschecks_of(
        lambda series: typical_us(case, series),
        median(case.launches.totals()) if case.launches else None,
        lambda method: intercept_us(calibration, method),
        {launch.kind for step in case.launches.steps for launch in step} if case.launches else (),
    )


def disagreements(checks: tuple[Crosscheck, ...]) -> tuple[Crosscheck, ...]:
    """Return the checks whose methods are known to disagree."""
    return tuple(check for check in checks if check.agrees is False)


def crosschecks_of(
    typical: Callable[[Series], float | None],
    launches: float | None,
    intercept: Callable[[Method], float | None],
    kinds: Collection[str] = (),
) -> tuple[Crosscheck, ...]:
    """Return the same as `crosschecks`, for a case that is given by its figures.

    Args:
        typical: returns the typical value of a series in µs; `None` if it was not taken.
        launches: device operations of a step; `None` if not counted.
        intercept: returns the intercept of a method in µs; `None` if it was not calibrated.
        kinds: of the device operations, such as `kernel` and `copy`.
    """
    if launches == 0:
        return ()
    only_kernels = set(kinds) <= {"kernel"}
    checks = []
    for pair, operations in (*((spans, 1.0) for spans in _SPANS), (_BUSY_TIMES, launches)):
        readings = []
        for series in pair:
            if (reported := typical(series)) is None:
                break
            added = intercept(series.method) if only_kernels else None
            known = None if added is None or operations is None else added * operations
            readings.append(Reading(series, reported, known))
        else:
            first, second = readings
            checks.append(Crosscheck(first, second, may_be_less=pair is _BUSY_TIMES))
    return tuple(checks)


def intercept_us(calibration: Calibration | None, method: Method) -> float | None:
    """Return the time that a method adds to a device time, in µs; `None` if not calibrated."""
    line = method_line(calibration, method)
    return None if line is None else line.intercept
