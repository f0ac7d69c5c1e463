"""How each primary time grows with the sizes of the cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bt_bench.analysis import typical_us
from bt_bench.analysis.statistics.samples import median
from bt_bench.base import ABSENT, Cell, Table, format_number
from bt_bench.base.names import Operation
from bt_bench.report.page.drawing import Line, line_drawing
from bt_bench.report.page.grid import operation_title
from bt_bench.report.page.parts import LineChart
from bt_bench.report.page.speed_ups import metric_title
from bt_bench.report.run.arranged import Arms, CaseId, primary_series
from bt_bench.results import CaseResult, Series, metric_of

_FEWEST_VALUES = 3
_MOST_SIZES = 4


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
    lines = []
    rows: dict[CaseId, list[str]] = {case_id: [] for case_id in sizes}
    for index, arm in enumerate(arms.all):
        points: dict[CaseId, tuple[float, float]] = {}
        for case_id, size in sizes.items():
            case = arm.ok_case(case_id)
            time_us = None if case is None else typical_us(case, series)
            rows[case_id].append(ABSENT if time_us is None else format_number(time_us))
            if time_us:
                points[case_id] = (size, time_us)
        ordered = sorted(points, key=lambda case_id: points[case_id])
        tips = tuple(f"{arm.name}, {case_id.case}: {rows[case_id][-1]} µs" for case_id in ordered)
        lines.append(Line(index, tuple(points[case_id] for case_id in ordered), tips))
    if not any(line.points for line in lines):
        return None
    joined = all(len({x for x, _ in line.points}) == len(line.points) for line in lines)
    positive = all(size > 0 for size in sizes.values())
    label = name.replace("_", " ")
    title = f"{operation_title(operation)}: {metric_title(metric_of(series).name)} over {label}"
    data = tuple(
        (Cell(case_id.case), Cell(format_number(sizes[case_id])), *map(Cell, texts))
        for case_id, texts in sorted(rows.items(), key=lambda item: sizes[item[0]])
    )
    alternative = f"{title}. {' '.join(_growth(arms, lines))}"
    return LineChart(
        name=f"scaling/{operation.name}/{metric_of(series).name}/{name}",
        title=title,
        alternative=alternative,
        drawing=line_drawing(
            lines,
            across=label,
            up="µs",
            alternative=alternative,
            logarithmic=(positive, True),
            joined=joined,
        ),
        data=Table(("Case", label.capitalize(), *(arm.name for arm in arms.all)), data, 1),
    )


def _growth(arms: Arms, lines: Sequence[Line]) -> Iterator[str]:
    for arm, line in zip(arms.all, lines, strict=True):
        if line.points:
            (first, start), (last, end) = line.points[0], line.points[-1]
            yield (
                f"{arm.name}: {format_number(start, 3)} µs at {first:g}, "
                f"{format_number(end, 3)} µs at {last:g}."
            )
