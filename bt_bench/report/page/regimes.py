"""The regimes side by side: how far a speed-up carries over to a busy GPU, and to graphs."""

from __future__ import annotations

from collections.abc import Sequence

from bt_bench.analysis import Judgement
from bt_bench.analysis.statistics.samples import median
from bt_bench.base import Cell, Interval, Table, format_factors
from bt_bench.base.errors import listed
from bt_bench.base.names import Operation
from bt_bench.report.axis import SpeedUp, axis_of, speed_up_of
from bt_bench.report.page.grid import operation_title
from bt_bench.report.page.parts import IntervalChart, Mark, MarkGroup
from bt_bench.report.page.speed_ups import arm_index
from bt_bench.report.run.arranged import Arms
from bt_bench.report.run.regime_tables import REGIMES
from bt_bench.results import metric_of

_TITLES = {
    "Step": "a step on an idle GPU",
    "Busy hot": "time added to a busy GPU, warm L2",
    "Busy cold": "time added to a busy GPU, cold L2",
    "Graph": "a replayed graph",
    "Graph event": "a replayed graph, by events",
    "Host jit": "host time of Triton's call",
}
_IDLE = _TITLES["Step"]
_ANSWERS = {
    _TITLES["Busy hot"]: "on a busy one with warm L2",
    _TITLES["Busy cold"]: "on a busy one with cold L2",
    _TITLES["Graph"]: "in a replayed graph",
}


def regime_chart(arms: Arms, operation: Operation) -> IntervalChart | None:
    """Draw each variant's range of speed-ups in each regime; `None` if only one was measured."""
    names = [arm.name for arm in arms.all]
    by_regime = _points(arms, operation)
    if len(by_regime) < 2:
        return None
    axis = axis_of(
        SpeedUp(min(points), median(points), max(points))
        for by_arm in by_regime.values()
        for points in by_arm.values()
    )
    groups = []
    rows = []
    for regime, by_arm in by_regime.items():
        marks = []
        for name, points in by_arm.items():
            low, middle, high = min(points), median(points), max(points)
            texts = format_factors(middle, low, high)
            text = _range_text(points)
            place = Interval(*map(axis.at, (low, middle, high)))
            marks.append(Mark(name, arm_index(names, name), place, text))
            rows.append((Cell(regime), Cell(name), *map(Cell, texts)))
        groups.append(MarkGroup(regime, tuple(marks)))
    title = f"{operation_title(operation)}: speed-up over {arms.baseline.name} by regime"
    return IntervalChart(
        name=f"regimes/{operation.name}",
        title=f"{title} (each line: the median, and the range over the cases)",
        alternative=f"{title}. "
        + " ".join(
            f"{group.title}: {', '.join(f'{mark.label} {mark.text}' for mark in group.marks)}."
            for group in groups
        ),
        groups=tuple(groups),
        ticks=axis.ticks(),
        data=Table(("Regime", "Variant", "Median", "Worst", "Best"), tuple(rows), 2),
    )


def regime_sentence(arms: Arms, operation: Operation) -> str | None:
    """Say how far the speed-up of the fastest variant carries over to other regimes.

    The fastest is the one with the largest median in a step on an idle GPU; if that is the base, it
    is compared with the next. Returns `None` if no other regime was measured.
    """
    by_regime = _points(arms, operation)
    idle = by_regime.get(_IDLE)
    if not idle:
        return None
    name, other = max(idle, key=lambda each: median(idle[each])), arms.baseline.name
    of_regime = {regime: points[name] for regime, points in by_regime.items() if name in points}
    if median(idle[name]) < 1:
        name, other = other, name
        of_regime = {regime: [1 / each for each in points] for regime, points in of_regime.items()}
    carried = [
        f"{_range_text(points)} {_ANSWERS[regime]}"
        for regime, points in of_regime.items()
        if regime in _ANSWERS
    ]
    if not carried:
        return None
    return (
        f"{name} is {_range_text(of_regime[_IDLE])} as fast as {other} in {_IDLE}, "
        f"{listed(carried)}: median, and range over the cases."
    )


def _points(arms: Arms, operation: Operation) -> dict[str, dict[str, list[float]]]:
    """Return the speed-ups of all cases by regime and variant, those that were measured."""
    by_regime: dict[str, dict[str, list[float]]] = {}
    for title, series in REGIMES.items():
        for judgement in _judgements(arms, operation, metric_of(series).name):
            if (found := speed_up_of(judgement)) is not None:
                of_regime = by_regime.setdefault(_TITLES[title], {})
                of_regime.setdefault(judgement.other, []).append(found.point)
    return by_regime


def _range_text(points: Sequence[float]) -> str:
    middle, low, high = format_factors(median(points), min(points), max(points))
    return f"{middle} × ({low} to {high})" if len(points) > 1 else f"{middle} ×"


def _judgements(arms: Arms, operation: Operation, metric: str) -> list[Judgement]:
    return [
        judgement
        for case_id in arms.cases_of(operation)
        for other in arms.others
        if (judgement := arms.judgement_on(other, case_id, metric)) is not None
    ]
