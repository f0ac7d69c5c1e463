"""Times of the steps of a window, one after the other, with the worst ones named."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bt_bench.analysis import step_medians_of
from bt_bench.base import Cell, Table, format_number
from bt_bench.report.page.parts import Line, LineChart
from bt_bench.report.page.speed_ups import metric_heading
from bt_bench.report.run.arranged import Arms, CaseId, primary_series
from bt_bench.results import FloatArray, Series, metric_of

_MOST_POINTS = 400
_NUM_WORST = 5


def window_charts(arms: Arms, case_id: CaseId) -> Iterator[LineChart]:
    """Yield a chart of each primary time over the steps of a case; none for a single step."""
    for series in primary_series(arms, case_id.operation):
        steps = {}
        for index, arm in enumerate(arms.all):
            case = arm.ok_case(case_id)
            medians = None if case is None else step_medians_of(case, series)
            if medians is not None and medians.size > 1:
                steps[index] = medians
        if steps:
            yield _chart(arms, case_id, series, steps)


def _chart(arms: Arms, case_id: CaseId, series: Series, steps: dict[int, FloatArray]) -> LineChart:
    names = [arm.name for arm in arms.all]
    lines = [Line(index, tuple(_points(medians))) for index, medians in steps.items()]
    title = f"{metric_heading(metric_of(series).name)} over the steps of the window"
    worst = "; ".join(
        f"{names[index]}: worst in step {int(medians.argmax())}, "
        f"{format_number(float(medians.max()), 3)} µs"
        for index, medians in steps.items()
    )
    rows = tuple(
        (
            Cell(names[index]),
            Cell(str(step)),
            Cell(format_number(float(medians[step]))),
            Cell(format_number(float(np.median(medians)))),
        )
        for index, medians in steps.items()
        for step in np.argsort(-medians, kind="stable")[:_NUM_WORST].tolist()
    )
    return LineChart(
        name=f"window/{case_id.key}/{metric_of(series).name}",
        title=f"{title} ({worst})",
        alternative=f"{title}. {worst}.",
        lines=lines,
        across="step",
        data=Table(("Variant", "Worst steps", "µs", "Median of all, µs"), rows, 1),
    )


def _points(medians: FloatArray) -> Iterator[tuple[float, float]]:
    """Yield the steps; of many, the largest of each few neighbours, which keeps all peaks."""
    stride = -(-medians.size // _MOST_POINTS)
    for start in range(0, medians.size, stride):
        step = start + int(medians[start : start + stride].argmax())
        yield float(step), float(medians[step])
