"""Checks of a result beyond the types of its values.

They find lists that do not fit together, and figures that cannot have been measured or counted.
Only differences of two times may be negative (`difference_us` of a control, delays of an
injection). Any time may be zero: `gap_us` of a step with a single operation, device times of steps
that launch nothing, and a graph slope that noise would have made negative.
`bt_bench.analysis.compare.estimating` handles zeros where a ratio is needed. A nonzero value many
orders of magnitude below the resolution of any clock is not a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from operator import lt

import numpy as np
import numpy.typing as npt

from bt_bench.results.run.calibration import Calibration, PlainCopies
from bt_bench.results.run.case import (
    CaseResult,
    CompiledKernel,
    LaunchCensus,
    Measurement,
    RoundLog,
)
from bt_bench.results.run.nouns import Series
from bt_bench.results.run.result import VariantResult
from bt_bench.results.run.series import FloatArray

LEAST_TIME_US, MOST_TIME_US = 1e-9, 1e12
"""A femtosecond, and eleven days: clocks tick by a nanosecond, and no call may take a day."""

MOST_COUNT = 2**53
"""Larger counts may not be exact in JSON."""


def problems(result: VariantResult) -> Iterator[str]:
    """Yield problems that types do not catch, each with its JSON path."""
    yield from header_problems(result, [case.key for case in result.cases])
    for index, case in enumerate(result.cases):
        yield from part_problems(f"$.cases[{index}]", case, result)
        yield from case_problems(f"$.cases[{index}]", case)


def header_problems(header: VariantResult, keys: Sequence[str]) -> Iterator[str]:
    """Yield the problems outside of the cases; see `problems`.

    Args:
        header: the result; its cases are ignored.
        keys: keys of its cases.
    """
    yield from _repeated("$.cases", "key", keys)
    yield from _impossible_calibration(header)


def part_problems(path: str, case: CaseResult, header: VariantResult) -> Iterator[str]:
    """Yield a problem if a case does not name one of the parts of its result; see `problems`."""
    if case.part not in header.part_numbers:
        expected = "no part" if header.parts is None else f"one of {len(header.parts)} parts"
        yield f"{path}.part is {case.part}; expected {expected}, as $.parts has"


def case_problems(path: str, case: CaseResult) -> Iterator[str]:
    """Yield the problems of one case; see `problems`.

    Args:
        path: JSON path of the case.
        case: the case.
    """
    expected = f"{case.operation}/{case.case}"
    if case.key != expected:
        yield f"{path}.key is {case.key!r}; expected {expected!r}, operation and case"
    num_steps = case.workload.num_steps
    if case.launches is not None and len(case.launches.steps) != num_steps:
        yield (
            f"{path}.launches.steps has {len(case.launches.steps)} steps; expected {num_steps}, "
            "as the window has"
        )
    yield from _uneven_required_bytes(f"{path}.workload.required_bytes", case)
    if case.rounds is None and (case.measurements or case.control):
        yield f"{path}.rounds is missing; expected the log of the rounds that were measured"
    if case.rounds is not None:
        yield from _uneven(f"{path}.rounds", case.rounds)
    yield from _unsound_measurements(f"{path}.measurements", case, case.measurements)
    yield from _unsound_measurements(f"{path}.control", case, case.control)
    for number, spread in enumerate(case.control_spreads):
        if abs(spread.difference_us) > MOST_TIME_US:
            place = f"{path}.control_spreads[{number}].difference_us"
            yield f"{place} is {spread.difference_us:g}; expected {MOST_TIME_US:g} µs at most"
    yield from _impossible_launches(f"{path}.launches", case.launches)
    yield from _impossible_kernels(f"{path}.compiled", case.compiled or ())


def are_times(samples: FloatArray, axis: tuple[int, ...] | None = None) -> npt.NDArray[np.bool_]:
    """Return whether values are possible times, zero included; along some axes or for all."""
    possible = (samples >= LEAST_TIME_US) & (samples <= MOST_TIME_US) | (samples == 0)
    whole: npt.NDArray[np.bool_] = possible.all(axis=axis)
    return whole


def impossible_times(path: str, values: Sequence[float | None]) -> Iterator[str]:
    """Yield a message with JSON path for each value that no clock can have measured.

    Args:
        path: JSON path of the values.
        values: in µs; `None` if nothing was measured.
    """
    for number, value in enumerate(values):
        if value is not None and value != 0 and not LEAST_TIME_US <= value <= MOST_TIME_US:
            yield (
                f"{path}[{number}] is {value:g}, which no clock can have measured; expected 0, or "
                f"{LEAST_TIME_US:g} to {MOST_TIME_US:g} µs"
            )


def _impossible_rows(path: str, rows: Sequence[Sequence[float]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield from impossible_times(f"{path}[{number}]", row)


def _impossible_calibration(result: VariantResult) -> Iterator[str]:
    for at, calibration in _calibrations(result):
        for index, figure in enumerate(calibration.figures):
            yield from impossible_times(f"{at}.figures[{index}].samples", figure.samples)
        for index, line in enumerate(calibration.lines):
            path = f"{at}.lines[{index}]"
            if len(line.reported_us) != len(line.set_us):
                yield (
                    f"{path}.reported_us has {len(line.reported_us)} lengths; expected "
                    f"{len(line.set_us)}, as set_us has"
                )
            yield from impossible_times(f"{path}.set_us", line.set_us)
            yield from _impossible_rows(f"{path}.reported_us", line.reported_us)
        if calibration.copies is not None:
            yield from _unsound_copies(f"{at}.copies", calibration.copies)


def _calibrations(result: VariantResult) -> Iterator[tuple[str, Calibration]]:
    """Yield the calibrations of a result with their JSON paths."""
    if result.calibration is not None:
        yield "$.calibration", result.calibration
    for index, part in enumerate(result.parts or ()):
        if part.calibration is not None:
            yield f"$.parts[{index}].calibration", part.calibration


def _unsound_copies(path: str, copies: PlainCopies) -> Iterator[str]:
    sizes = copies.moved_bytes
    if len(copies.samples) != len(sizes):
        yield f"{path}.samples has {len(copies.samples)} lists; expected {len(sizes)}, one per size"
    if sorted(set(sizes)) != sizes:
        yield f"{path}.moved_bytes is {sizes}; expected sizes that rise"
    yield from _impossible_rows(f"{path}.samples", copies.samples)


def _uneven_required_bytes(path: str, case: CaseResult) -> Iterator[str]:
    for operation, required in case.workload.required_bytes.items():
        for name, values in (("read", required.read), ("written", required.written)):
            if len(values) != case.workload.num_steps:
                yield (
                    f"{path}.{operation}.{name} has {len(values)} values; expected "
                    f"{case.workload.num_steps}, one for each step of the window"
                )


def _impossible_launches(path: str, launches: LaunchCensus | None) -> Iterator[str]:
    for step, counts in enumerate(launches.steps if launches else ()):
        for index, launch in enumerate(counts):
            if launch.count > MOST_COUNT:
                yield f"{path}.steps[{step}][{index}].count is above {MOST_COUNT}; expected less"


def _impossible_kernels(path: str, compiled: Sequence[CompiledKernel]) -> Iterator[str]:
    yield from _repeated(path, "name", [kernel.name for kernel in compiled])
    for index, kernel in enumerate(compiled):
        for name in ("registers", "spills"):
            values: list[int | None] = getattr(kernel, name)
            for number, value in enumerate(values):
                if value is not None and not 0 <= value <= MOST_COUNT:
                    place = f"{path}[{index}].{name}[{number}]"
                    yield f"{place} is not a count; expected a whole number from 0 to {MOST_COUNT}"


def _repeated(path: str, key: str, values: Sequence[str]) -> Iterator[str]:
    if len(set(values)) == len(values):
        return
    for value, count in Counter(values).items():
        if count > 1:
            yield f"{path} has {key} {str(value)!r} {count} times; expected it once"


def _parts(series: Series) -> tuple[str, ...]:
    return series.quantity, series.method, series.launch_path, series.load, series.l2


def _name(series: Series) -> str:
    return ", ".join(_parts(series))


def _uneven(path: str, log: RoundLog) -> Iterator[str]:
    """Yield a problem for each list of the log that is not as long as `kind`."""
    for name in ("instance", "place", "seconds", "sm_clock_mhz", "discarded"):
        values: list[object] = getattr(log, name)
        if len(values) != len(log.kind):
            yield f"{path}.{name} has {len(values)} rounds; expected {len(log.kind)}, as kind has"


def _unsound_measurements(
    path: str, case: CaseResult, measurements: Sequence[Measurement]
) -> Iterator[str]:
    if not measurements:
        return
    if len(set(map(_parts, measurements))) < len(measurements):
        yield from _repeated(path, "series", [*map(_name, measurements)])
    # All at once is many times faster.
    possible = are_times(np.concatenate([each.samples.flat for each in measurements]))
    checked: list[int] | None = None  # most measurements have the rounds of the one before
    for number, measurement in enumerate(measurements):
        place = f"{path}[{number}]"
        rounds, rows = measurement.rounds, measurement.samples
        if not possible:
            yield from _impossible_rows(f"{place}.samples", rows)
        if not rows:
            yield f"{place}.samples has no rounds; expected at least one, or no such measurement"
        if len(rounds) != len(rows):
            yield f"{place}.rounds has {len(rounds)} rounds; expected {len(rows)}, as samples has"
        if rounds is not checked and rounds != checked:
            yield from _unsound_rounds(f"{place}.rounds", rounds, case.rounds)
            checked = rounds
        yield from _uneven_samples(place, measurement, case.workload.num_steps)


def _unsound_rounds(path: str, rounds: Sequence[int], log: RoundLog | None) -> Iterator[str]:
    """Yield a problem for each round that does not ascend, is not in the log, or was discarded."""
    if _are_sound(rounds, log):
        return  # as nearly always
    for index, (before, number) in enumerate(pairwise(rounds), start=1):
        if number <= before:
            yield f"{path}[{index}] is {number} after {before}; expected them ascending"
    if log is None:
        return
    discarded, in_log = log.discarded, len(log.discarded)
    for index, number in enumerate(rounds):
        if number >= in_log:
            yield f"{path}[{index}] is {number}; expected one of the {in_log} rounds of the log"
        elif discarded[number] is not None:
            yield f"{path}[{index}] is {number}, a discarded round ({discarded[number]})"


def _are_sound(rounds: Sequence[int], log: RoundLog | None) -> bool:
    """Return whether `_unsound_rounds` would find nothing; many times faster."""
    if not all(map(lt, rounds, islice(rounds, 1, None))):
        return False
    if log is None or not rounds:
        return True
    return rounds[-1] < len(log.discarded) and not any(map(log.discarded.__getitem__, rounds))


def _uneven_samples(path: str, measurement: Measurement, num_steps: int) -> Iterator[str]:
    """Yield a problem for each row of samples whose length does not fit `per`."""
    rows = measurement.samples
    in_steps = measurement.per == "step"
    expected = num_steps if in_steps else 1
    if rows.width == expected:
        return  # as nearly always
    what = f"one for each of the {expected} steps" if in_steps else "one for the whole"
    for index, length in enumerate(rows.lengths):
        if length != expected:
            yield f"{path}.samples[{index}] has {length} samples; expected {what} of its window"
