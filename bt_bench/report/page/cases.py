"""The part of a page on one case: its figures, its budget, its samples, and how to repeat it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from bt_bench.base import ABSENT, Bullets, Cell, Table, format_number
from bt_bench.base.errors import listed
from bt_bench.report.formats.texts import TONES, change_text, range_texts, verdict_text
from bt_bench.report.page.bars import budget_chart
from bt_bench.report.page.grid import operation_title
from bt_bench.report.page.parts import Block, CasePart
from bt_bench.report.page.samples import packed_samples, shown_series
from bt_bench.report.page.speed_ups import metric_title
from bt_bench.report.page.windows import window_charts
from bt_bench.report.run.arranged import Arms, ArrangedArm, CaseId
from bt_bench.report.run.cells import launch_cell, no_case_cell, time_of
from bt_bench.report.run.work import work_table
from bt_bench.results import CaseResult, Series, Status, metric_of, place_of

_PERCENTILES = (1, 25, 50, 75, 99)


def case_part(arms: Arms, case_id: CaseId, anchor: str, stride: int, *, charts: bool) -> CasePart:
    """Build the part on one case.

    Args:
        arms: the run.
        case_id: the case.
        anchor: its id in the page.
        stride: show every `stride`-th round.
        charts: show all figures with charts, and not only those that decide.
    """
    packed = packed_samples(arms, case_id, stride)
    return CasePart(
        anchor=anchor,
        title=f"{operation_title(case_id.operation)}, {case_id.case}",
        blocks=tuple(_blocks(arms, case_id, charts)),
        samples=packed,
        remark=f"One round in {stride} is shown." if packed and stride > 1 else "",
    )


def _blocks(arms: Arms, case_id: CaseId, charts: bool) -> Iterator[Block]:
    cases = {arm.name: arm.cases[case_id] for arm in arms.all if case_id in arm.cases}
    failed = [
        f"{name}: {case.status}, {case.reason.message}" if case.reason else f"{name}: {case.status}"
        for name, case in cases.items()
        if case.status is not Status.OK
    ]
    if failed:
        yield Bullets(tuple(failed))
    yield f"Workload: {_workload(next(iter(cases.values())))}."
    figures = _figures(
        arms, case_id, _taken(arms, case_id) if charts else shown_series(arms, case_id)
    )
    if figures.rows:
        yield f"Medians in µs, changes against {arms.baseline.name} in percent with the interval:"
        yield figures
    if charts:
        distribution = _distribution(arms, case_id)
        if distribution.rows:
            yield "Distribution over rounds, in µs:"
            yield distribution
        budget = budget_chart(arms, case_id)
        if budget is not None:
            yield budget
        yield from window_charts(arms, case_id)
        work = work_table(arms, [case_id])
        if work is not None:
            yield (
                "GPU time (Device) against its lower bound, an empty kernel (Launch) or copying "
                "the bytes that must move (Bytes), in µs:"
            )
            yield work
    notes = [f"{name}: {note}" for name, case in cases.items() for note in case.notes]
    if notes:
        yield Bullets(tuple(notes))


def _workload(case: CaseResult) -> str:
    workload = case.workload
    sizes = [f"{name} {_span(values)}" for name, values in workload.sizes.items() if values]
    steps = [] if workload.num_steps == 1 else [f"{workload.num_steps} steps"]
    given = [f"{name}={value}" for name, value in workload.parameters.items() if value is not None]
    return f"{workload.kind}; {', '.join([*steps, *sizes])}; {' '.join(given)}"


def _span(values: Sequence[int]) -> str:
    return str(values[0]) if min(values) == max(values) else f"{min(values)}–{max(values)}"


def _figures(arms: Arms, case_id: CaseId, series_shown: Sequence[Series]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (Cell("launches per step"), *(_launches(arm, case_id) for arm in arms.all))
    ]
    for series in series_shown:
        times = [time_of(arms.baseline, case_id, series)]
        times += [_changed(arms, other, case_id, series) for other in arms.others]
        rows.append((Cell(metric_of(series).name), *times))
    return Table(("Metric", *(arm.name for arm in arms.all)), tuple(rows), 1)


def _launches(arm: ArrangedArm, case_id: CaseId) -> Cell:
    case = arm.ok_case(case_id)
    return no_case_cell(arm, case_id) if case is None else launch_cell(case)


def _changed(arms: Arms, other: ArrangedArm, case_id: CaseId, series: Series) -> Cell:
    time = time_of(other, case_id, series)
    judgement = arms.judgement(other, case_id, series)
    if judgement is None or judgement.ratio is None:
        return time
    interval = range_texts(judgement).interval
    within = "" if interval == ABSENT else f" ({interval})"
    text = f"{time.text}  {change_text(judgement.ratio)} %{within} {verdict_text(judgement)}"
    return Cell(text, None, TONES.get(judgement.verdict))


def _taken(arms: Arms, case_id: CaseId) -> list[Series]:
    taken = {
        measurement.series
        for arm in arms.all
        if case_id in arm.cases
        for measurement in arm.cases[case_id].measurements
    }
    return sorted(taken, key=place_of)


def _distribution(arms: Arms, case_id: CaseId) -> Table:
    rows = []
    for series in shown_series(arms, case_id):
        for arm in arms.all:
            case = arm.ok_case(case_id)
            measurement = None if case is None else case.measurement(series)
            if case is None or measurement is None or not measurement.samples:
                continue
            flat = np.fromiter(chain.from_iterable(measurement.samples), dtype=float)
            marks = np.percentile(flat, _PERCENTILES)
            rows.append(
                (
                    Cell(metric_title(metric_of(series).name)),
                    Cell(arm.name),
                    *(Cell(format_number(float(mark))) for mark in marks),
                    Cell(str(len(measurement.rounds))),
                    Cell(_discarded(case)),
                )
            )
    columns = (*(f"p{each}" for each in _PERCENTILES), "Rounds", "Discarded")
    return Table(("Time", "Variant", *columns), tuple(rows), 2)


def _discarded(case: CaseResult) -> str:
    counts = case.stopping.discarded if case.stopping else {}
    return listed([f"{count} {code}" for code, count in counts.items() if count]) or "0"
