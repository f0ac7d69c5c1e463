"""What is wrong with a result although every value has its type: lists that do not fit together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from bt_bench.model import CaseResult, Measurement, RoundLog, Series, VariantResult


def problems(result: VariantResult) -> Iterator[str]:
    """What types alone do not catch, each with its JSON path."""
    yield from _repeated("$.cases", "key", (case.key for case in result.cases))
    for index, line in enumerate(result.calibration.lines if result.calibration else ()):
        if len(line.reported_us) != len(line.set_us):
            yield (
                f"$.calibration.lines[{index}].reported_us has {len(line.reported_us)} lengths; "
                f"expected {len(line.set_us)}, as set_us has"
            )
    for index, case in enumerate(result.cases):
        yield from case_problems(f"$.cases[{index}]", case)


def case_problems(path: str, case: CaseResult) -> Iterator[str]:
    """The same of one case.

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


def _repeated(path: str, key: str, values: Iterable[str]) -> Iterator[str]:
    for value, count in Counter(values).items():
        if count > 1:
            yield f"{path} has {key} {str(value)!r} {count} times; expected it once"


def _name(series: Series) -> str:
    return ", ".join((series.quantity, series.method, series.launch_path, series.load, series.l2))


def _uneven(path: str, log: RoundLog) -> Iterator[str]:
    """Lists of the log that are not as long as that of its kinds."""
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
    """Each row of samples belongs to a round of the log that counts, and has what `per` says."""
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
