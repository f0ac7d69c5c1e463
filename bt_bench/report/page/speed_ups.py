"""Pictures of who is faster, and by how much: an interval for each case, or a range over many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bt_bench.analysis import Judgement
from bt_bench.analysis.statistics.samples import median, percentile
from bt_bench.base import ABSENT, Cell, Interval, Table, format_factors
from bt_bench.report.axis import LogAxis, SpeedUp, axis_of, speed_up_of
from bt_bench.report.formats.phrases import TIMES, noun_of
from bt_bench.report.formats.texts import TONES, speed_up_texts, verdict_text
from bt_bench.report.page.parts import IntervalChart, Mark, MarkGroup
from bt_bench.results import metric_named

MOST_LINES = 48
"""Most lines of a chart that has one for each case; with more, it shows a range for each arm."""


@dataclass(frozen=True)
class Group:
    """Judgements of one operation on one metric."""

    operation: str
    title: str
    metric: str
    judgements: tuple[Judgement, ...]

    @property
    def is_resolved(self) -> bool:
        """Return whether any of them is a difference that was shown."""
        return any(each.is_final for each in self.judgements)


def metric_title(name: str) -> str:
    """Return `host time`, or the metric's own name if it has no everyday one."""
    series = TIMES.get(name) or metric_named(name).series
    return name if series is None else noun_of(series)


def metric_heading(name: str) -> str:
    """Return a metric's title as the beginning of a line, such as `GPU time`."""
    title = metric_title(name)
    return f"{title[0].upper()}{title[1:]}"


def primary_groups(judgements: Sequence[Judgement]) -> list[Group]:
    """Return the judgements on primary times by operation and metric, the largest first."""
    found: dict[tuple[int, str, str], list[Judgement]] = {}
    for each in judgements:
        if each.metric in TIMES and not each.exploratory:
            key = (-each.operation.rank, each.operation.name, each.metric)
            found.setdefault(key, []).append(each)
    order = [*TIMES]
    keys = sorted(found, key=lambda key: (*key[:2], order.index(key[2])))
    return [
        Group(name, _operation_title(found[key][0]), metric, tuple(found[key]))
        for key in keys
        for _, name, metric in [key]
    ]


def speed_up_chart(group: Group, arms: Sequence[str]) -> IntervalChart | None:
    """Draw the speed-ups of one group; `None` if it has no figure.

    Args:
        group: verdicts of one operation on one metric.
        arms: names of the arms, in the order of their colours.
    """
    found = [(each, speed_up_of(each)) for each in group.judgements]
    figures = [speed_up for _, speed_up in found if speed_up is not None]
    if not figures:
        return None
    few = len(found) <= MOST_LINES
    if not few:  # intervals are not shown, and their ends would leave much of the axis empty
        figures = [SpeedUp(each.point, each.point, each.point) for each in figures]
    axis = axis_of(figures)
    bases = {each.base for each in group.judgements}
    against = f", against {bases.pop()}" if len(bases) == 1 else ""
    title = f"{group.title}: speed-up in {metric_title(group.metric)}{against}"
    groups = _by_case(found, arms, axis) if few else _by_arm(found, arms, axis)
    how = (
        "each line: the estimate, and the interval that its verdict rests on"
        if few
        else "each line: median, the middle 80 % of the cases, and the range over all cases"
    )
    return IntervalChart(
        name=f"speed-up/{group.operation}/{group.metric}",
        title=f"{title} ({how})",
        alternative=f"{title}. {'. '.join(_ranges(found))}.",
        groups=tuple(groups),
        ticks=axis.ticks(),
        data=_data(group.judgements) if few else _range_data(found),
    )


Found = Sequence[tuple[Judgement, SpeedUp | None]]


def _operation_title(judgement: Judgement) -> str:
    operation = judgement.operation
    return operation.traits.title if operation.is_known else operation.name


def arm_index(arms: Sequence[str], name: str) -> int:
    """Return the index of an arm's colour; names that the page lacks share the last one."""
    return arms.index(name) if name in arms else len(arms)


def _by_case(found: Found, arms: Sequence[str], axis: LogAxis) -> Iterator[MarkGroup]:
    by_case: dict[str, list[Mark]] = {}
    for judgement, speed_up in found:
        texts = speed_up_texts(judgement)
        point = texts.whole if texts.interval != ABSENT else texts.point
        mark = Mark(
            label=judgement.other,
            arm=arm_index(arms, judgement.other),
            interval=None if speed_up is None else axis.place(speed_up),
            text=point,
            word=verdict_text(judgement),
            tone=TONES.get(judgement.verdict),
        )
        by_case.setdefault(judgement.case, []).append(mark)
    yield from (MarkGroup(case, tuple(marks)) for case, marks in by_case.items())


def _by_arm(found: Found, arms: Sequence[str], axis: LogAxis) -> Iterator[MarkGroup]:
    marks = []
    for name, points in _points(found).items():
        outer = Interval(*map(axis.at, (points[0], median(points), points[-1])))
        tenth, ninetieth = (percentile(points, each) for each in (10, 90))
        inner = Interval(axis.at(tenth), outer.point, axis.at(ninetieth))
        low, middle, high = format_factors(points[0], median(points), points[-1])
        text = f"{middle} × ({low} to {high})"
        marks.append(Mark(name, arm_index(arms, name), outer, text, inner=inner))
    yield MarkGroup(f"{len({each.case for each, _ in found})} cases", tuple(marks))


def _points(found: Found) -> dict[str, list[float]]:
    points: dict[str, list[float]] = {}
    for judgement, speed_up in found:
        if speed_up is not None:
            points.setdefault(judgement.other, []).append(speed_up.point)
    return {name: sorted(values) for name, values in points.items()}


def _ranges(found: Found) -> Iterator[str]:
    for name, points in _points(found).items():
        low, high = format_factors(points[0], points[-1])
        yield f"{name}: {low} × to {high} ×" if low != high else f"{name}: {low} ×"


def _data(judgements: Sequence[Judgement]) -> Table:
    rows = []
    for each in judgements:
        texts = speed_up_texts(each)
        rows.append(
            (
                Cell(each.case),
                Cell(each.other),
                Cell(texts.point),
                Cell(texts.interval),
                Cell(verdict_text(each), None, TONES.get(each.verdict)),
            )
        )
    return Table(("Case", "Variant", "Speed-up", "Interval", "Verdict"), tuple(rows), 2)


def _range_data(found: Found) -> Table:
    rows = []
    for name, points in _points(found).items():
        values = (points[0], percentile(points, 10), median(points), percentile(points, 90))
        texts = format_factors(*values, points[-1])
        rows.append((Cell(name), Cell(str(len(points))), *map(Cell, texts)))
    columns = ("Variant", "Cases", "Worst", "10th percentile", "Median", "90th", "Best")
    return Table(columns, tuple(rows), 1)
