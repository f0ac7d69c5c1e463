"""Draw the growth of each primary time with the sizes of the cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bt_bench.analysis.statistics.samples import median
from bt_bench.base import ABSENT, Cell, Table, format_number
from bt_bench.base.names import Operation
from bt_bench.report.page.grid import operation_title
from bt_bench.report.page.parts import Line, LineChart
from bt_bench.report.page.speed_ups import metric_title
from bt_bench.report.run.arranged import Arms, ArrangedArm, CaseId, primary_series
from bt_bench.results import CaseResult, Series, metric_of

_FEWEST_VALUES = 3
_MOST_SIZES = 4
_MOST_POINTS = 300  # of an arm in one chart; of more cases, it shows medians
_MOST_BINS = 40


def scaling_charts(arms: Arms, operation: Operation) -> Iterator[LineChart]:
    """Yield a chart for each primary time and each size that varies over the cases.

    A size is a number among the parameters or the sizes of the workloads; those that always vary
    together share a chart.
    """
    cases = arms.cases_of(operation)
    sizes = _sizes(arms, cases)
    for series in primary_series(arms, operation):
        for name, by_case in sizes.items():
            chart = _chart(arms, operation, series, name, by_case)
            if chart is not None:
                yield chart


def _sizes(arms: Arms, cases: Sequence[CaseId]) -> dict[str, dict[CaseId, float]]:
    """Return the values of each size that varies, by its name."""
    found: dict[str, dict[CaseId, float]] = {}
    for case_id in cases:
        case = next(arm.cases[case_id] for arm in arms.all if case_id in arm.cases)
        for name, value in _numbers(case).items():
            found.setdefault(name, {})[case_id] = value
    by_values: dict[tuple[tuple[CaseId, float], ...], str] = {}
    for name, values in found.items():
        if len({*values.values()}) >= _FEWEST_VALUES:
            by_values.setdefault(tuple(values.items()), name)
    return {name: dict(values) for values, name in [*by_values.items()][:_MOST_SIZES]}


def _numbers(case: CaseResult) -> dict[str, float]:
    """Return the sizes of a case, then its numeric parameters, without the seed."""
    workload = case.workload
    numbers = {name: median(values) for name, values in workload.sizes.items() if values}
    for name, value in workload.parameters.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and name != "seed" and name not in numbers:
            numbers[name] = float(value)  # type: ignore[arg-type]
    return numbers


def _chart(
    arms: Arms, operation: Operation, series: Series, name: str, sizes: Mapping[CaseId, float]
) -> LineChart | None:
    points = [_points(arm, series, sizes) for arm in arms.all]
    if not any(points):
        return None
    lines = [
        Line(
            index,
            tuple((point.size, point.time_us) for point in found),
            tuple(
                f"{arm.name}, {point.named}: {format_number(point.time_us)} µs" for point in found
            ),
        )
        for index, (arm, found) in enumerate(zip(arms.all, points, strict=True))
    ]
    joined = all(len({x for x, _ in line.points}) == len(line.points) for line in lines)
    label = name.replace("_", " ")
    binned = len(sizes) > _MOST_POINTS
    title = f"{operation_title(operation)}: {metric_title(metric_of(series).name)} over {label}"
    if binned:
        title += f" (medians of {len(sizes):,} cases in at most {_MOST_BINS} bins of {label})"
    return LineChart(
        name=f"scaling/{operation.name}/{metric_of(series).name}/{name}",
        title=title,
        alternative=f"{title}. {' '.join(_growth(arms, lines))}",
        lines=lines,
        across=label,
        logarithmic=all(size > 0 for size in sizes.values()),
        joined=joined,
        data=_data("Cases" if binned else "Case", label, arms, points),
    )


@dataclass(frozen=True)
class _Point:
    """The time of a case, or of a bin of cases, at a size."""

    size: float
    time_us: float
    named: str
    case_id: CaseId | None = None


def _points(arm: ArrangedArm, series: Series, sizes: Mapping[CaseId, float]) -> list[_Point]:
    """Return the points of an arm by size; with many cases, medians over bins of the size.

    Every bin has as many cases as the others, or one less.
    """
    found = [
        _Point(size, time_us, case_id.case, case_id)
        for case_id, size in sizes.items()
        if (time_us := arm.typical_us(case_id, series))
    ]
    found.sort(key=lambda point: (point.size, point.time_us))
    if len(sizes) <= _MOST_POINTS:
        return found
    edges = [len(found) * index // _MOST_BINS for index in range(_MOST_BINS + 1)]
    bins = [found[start:end] for start, end in pairwise(edges) if start < end]
    return [
        _Point(
            median([point.size for point in members]),
            median([point.time_us for point in members]),
            f"median of {len(members)} cases",
        )
        for members in bins
    ]


def _data(heading: str, label: str, arms: Arms, points: Sequence[Sequence[_Point]]) -> Table:
    rows: dict[tuple[float, str, CaseId | None], list[str]] = {}
    for index, found in enumerate(points):
        for point in found:
            row = rows.setdefault((point.size, point.named, point.case_id), [ABSENT] * len(points))
            row[index] = format_number(point.time_us)
    cells = tuple(
        (Cell(named), Cell(format_number(size)), *map(Cell, texts))
        for (size, named, _), texts in sorted(rows.items(), key=lambda item: item[0][0])
    )
    return Table((heading, label.capitalize(), *(arm.name for arm in arms.all)), cells, 1)


def _growth(arms: Arms, lines: Sequence[Line]) -> Iterator[str]:
    for arm, line in zip(arms.all, lines, strict=True):
        if line.points:
            (first, start), (last, end) = line.points[0], line.points[-1]
            yield (
                f"{arm.name}: {format_number(start, 3)} µs at {first:g}, "
                f"{format_number(end, 3)} µs at {last:g}."
            )
