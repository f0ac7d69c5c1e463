"""Finds problems of a result whose values all have the right type.

These are lists that do not fit together, and figures that cannot have been measured or counted.
Only differences of two times may be negative (`difference_us` of a control, delays of an
injection). Any time may be zero: `gap_us` of a step with a single operation, device times of steps
that launch nothing, and a graph slope that noise would have made negative. So zero is allowed, and
`bt_bench.analysis.compare.estimating` handles it where a ratio is needed. But a value between zero
and many orders of magnitude below the resolution of any clock is not a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from bt_bench.results.case import CaseResult, CompiledKernel, LaunchCensus, Measurement, RoundLog
from bt_bench.results.nouns import Series
from bt_bench.results.result import VariantResult
from bt_bench.results.series import FloatArray

LEAST_TIME_US, MOST_TIME_US = 1e-9, 1e12
"""A femtosecond, and eleven days: clocks tick by a nanosecond, and no call may take a day."""

MOST_COUNT = 2**53
"""Larger counts may not be exact in JSON."""


def problems(result: VariantResult) -> Iterator[str]:
    """Problems that types do not catch, each with its JSON path."""
    yield from _repeated("$.cases", "key", (case.key for case in result.cases))
    yield from _impossible_calibration(result)
    for index, line in enumerate(result.calibration.lines if result.calibration else ()):
        if len(line.reported_us) != len(line.set_us):
            yield (
                f"$.calibration.lines[{index}].reported_us has {len(line.reported_us)} lengths; "
                f"expected {len(line.set_us)}, as set_us has"
            )
    for index, case in enumerate(result.cases):
        yield from case_problems(f"$.cases[{index}]", case)


def case_problems(path: str, case: CaseResult) -> Iterator[str]:
    """As `problems`, for one case.

    Args:
        path: JSON path of the case.
        case: the case.
    """
    expected = f"{case.operation.value}/{case.case}"
    if case.key != expected:
        yield f"{path}.key is {case.key!r}; expected {expected!r}, operation and case"
    num_steps = case.workload.num_steps
    if case.launches is not None and len(case.launches.steps) != num_steps:
        yield (
            f"{path}.launches.steps has {len(case.launches.steps)} steps; expected {num_steps}, "
            "as the window has"
        )
    if case.rounds is None and (case.measurements or case.control):
        yield f"{path}.rounds is missing; expected the log of the rounds that were measured"
    if case.rounds is not None:
        yield from _uneven(f"{path}.rounds", case.rounds)
    for key, measurements in (("measurements", case.measurements), ("control", case.control)):
        names = (_name(measurement) for measurement in measurements)
        yield from _repeated(f"{path}.{key}", "series", names)
        for number, measurement in enumerate(measurements):
            yield from _measurement_problems(f"{path}.{key}[{number}]", case, measurement)
    for number, spread in enumerate(case.control_spreads):
        if abs(spread.difference_us) > MOST_TIME_US:
            place = f"{path}.control_spreads[{number}].difference_us"
            yield f"{place} is {spread.difference_us:g}; expected {MOST_TIME_US:g} us at most"
    yield from _impossible_launches(f"{path}.launches", case.launches)
    yield from _impossible_kernels(f"{path}.compiled", case.compiled or ())


def are_times(samples: FloatArray, axis: tuple[int, ...] | None = None) -> npt.NDArray[np.bool_]:
    """Whether values are possible times, zero included; along some axes or for all."""
    outside = (samples < LEAST_TIME_US) & (samples != 0) | (samples > MOST_TIME_US)
    whole: npt.NDArray[np.bool_] = ~(outside | np.isnan(samples)).any(axis=axis)
    return whole


def impossible_times(path: str, values: Sequence[float | None]) -> Iterator[str]:
    """Each value that no clock can have measured, with its JSON path.

    Args:
        path: JSON path of the values.
        values: in µs; `None` where nothing was measured.
    """
    for number, value in enumerate(values):
        if value is not None and value != 0 and not LEAST_TIME_US <= value <= MOST_TIME_US:
            yield (
                f"{path}[{number}] is {value:g}, which no clock can have measured; expected 0, or "
                f"{LEAST_TIME_US:g} to {MOST_TIME_US:g} us"
            )


def _impossible_rows(path: str, rows: Sequence[Sequence[float]]) -> Iterator[str]:
    if are_times(np.fromiter(chain.from_iterable(rows), np.float64)):
        return  # as in most files; this is many times faster
    for number, row in enumerate(rows):
        yield from impossible_times(f"{path}[{number}]", row)


def _impossible_calibration(result: VariantResult) -> Iterator[str]:
    calibration = result.calibration
    if calibration is None:
        return
    for index, figure in enumerate(calibration.figures):
        yield from impossible_times(f"$.calibration.figures[{index}].samples", figure.samples)
    for index, line in enumerate(calibration.lines):
        path = f"$.calibration.lines[{index}]"
        yield from impossible_times(f"{path}.set_us", line.set_us)
        yield from _impossible_rows(f"{path}.reported_us", line.reported_us)


def _impossible_launches(path: str, launches: LaunchCensus | None) -> Iterator[str]:
    for step, counts in enumerate(launches.steps if launches else ()):
        for index, launch in enumerate(counts):
            if launch.count > MOST_COUNT:
                yield f"{path}.steps[{step}][{index}].count is above {MOST_COUNT}; expected less"


def _impossible_kernels(path: str, compiled: Sequence[CompiledKernel]) -> Iterator[str]:
    yield from _repeated(path, "name", (kernel.name for kernel in compiled))
    for index, kernel in enumerate(compiled):
        for name in ("registers", "spills"):
            values: list[int | None] = getattr(kernel, name)
            for number, value in enumerate(values):
                if value is not None and not 0 <= value <= MOST_COUNT:
                    place = f"{path}[{index}].{name}[{number}]"
                    yield f"{place} is not a count; expected a whole number from 0 to {MOST_COUNT}"


def _repeated(path: str, key: str, values: Iterable[str]) -> Iterator[str]:
    for value, count in Counter(values).items():
        if count > 1:
            yield f"{path} has {key} {str(value)!r} {count} times; expected it once"


def _name(series: Series) -> str:
    return ", ".join((series.quantity, series.method, series.launch_path, series.load, series.l2))


def _uneven(path: str, log: RoundLog) -> Iterator[str]:
    """Lists of the log whose length differs from that of `kind`."""
    lists: dict[str, Sequence[object]] = {
        "instance": log.instance,
        "place": log.place,
        "seconds": log.seconds,
        "sm_clock_mhz": log.sm_clock_mhz,
        "discarded": log.discarded,
    }
    for name, values in lists.items():
        if len(values) != len(log.kind):
            yield f"{path}.{name} has {len(values)} rounds; expected {len(log.kind)}, as kind has"


def _measurement_problems(path: str, case: CaseResult, measurement: Measurement) -> Iterator[str]:
    """Checks that each row of samples belongs to a counting round and is as long as `per` says."""
    yield from _impossible_rows(f"{path}.samples", measurement.samples)
    if not measurement.samples:
        yield f"{path}.samples has no rounds; expected at least one, or no such measurement"
    if len(measurement.rounds) != len(measurement.samples):
        yield (
            f"{path}.rounds has {len(measurement.rounds)} rounds; "
            f"expected {len(measurement.samples)}, as samples has"
        )
    for index, (before, number) in enumerate(pairwise(measurement.rounds), start=1):
        if number <= before:
            yield f"{path}.rounds[{index}] is {number} after {before}; expected them ascending"
    for index, number in enumerate(measurement.rounds if case.rounds else ()):
        yield from _uncounted(f"{path}.rounds[{index}]", case.rounds, number)
    in_steps = measurement.per == "step"
    expected = case.workload.num_steps if in_steps else 1
    what = f"one for each of the {expected} steps" if in_steps else "one for the whole"
    for index, samples in enumerate(measurement.samples):
        if len(samples) != expected:
            yield (
                f"{path}.samples[{index}] has {len(samples)} samples; expected {what} of its window"
            )


def _uncounted(path: str, log: RoundLog | None, number: int) -> Iterator[str]:
    if log is None:
        return
    if number >= len(log.discarded):
        yield f"{path} is {number}; expected one of the {len(log.discarded)} rounds of the log"
    elif log.discarded[number] is not None:
        yield f"{path} is {number}, a discarded round ({log.discarded[number]})"
