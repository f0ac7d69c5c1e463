"""The tables of one operation that fit a screen: a column per variant, a row per case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bt_bench.analysis import WORST_FIRST, Judgement, Verdict, median
from bt_bench.base import ABSENT, Axis, Cell, Heading, Strip, Table
from bt_bench.base.names import Operation
from bt_bench.report.axis import SpeedUp, axis_of, speed_up_of
from bt_bench.report.formats.arrange import worst_first
from bt_bench.report.formats.judged_strips import JudgedStrips
from bt_bench.report.formats.phrases import TIMES
from bt_bench.report.formats.table_format import verdicts_cell
from bt_bench.report.formats.texts import TONES, change_text, speed_up_texts
from bt_bench.report.run.arranged import Arms, ArrangedArm, CaseId
from bt_bench.report.run.cells import no_case_cell, range_text, speed_up_cells, time_of
from bt_bench.report.run.headlines import MAX_OTHERS, metric_noun
from bt_bench.results import Direction, Series, metric_named, metric_of

MAX_ROWS = 20
"""Most rows of cases on a screen; if there are more, only the worst cases are shown."""

NUM_WORST = 3
"""Number of worst cases that are shown for each metric if not all fit."""

LAUNCHES = "launches"
_MOST_WITH_POINTS = 2  # other variants with a speed-up beside each interval

_RANGE_LEGEND = (
    "Strips: speed-ups in the worst, median and best case, logarithmic; right of 1 × is faster."
)

_MARKS = {Verdict.SAME: " =", Verdict.INCONCLUSIVE: " ?"}
MARKS = "= the same, within the margin; ? undecided, the interval extends beyond it"


def all_cases_fit(arms: Arms, operation: Operation, num_metrics: int) -> bool:
    """Return whether all cases fit a screen, with a column for each variant."""
    return (
        len(arms.others) <= MAX_OTHERS
        and len(arms.cases_of(operation)) * max(1, num_metrics) <= MAX_ROWS
    )


def judgements_of(arms: Arms, operation: Operation) -> list[Judgement]:
    """Return the verdicts on the cases and variants that are shown."""
    shown = {(other.name, case_id.key) for other in arms.others for case_id in arms.case_ids}
    judged = arms.judged.judgements if arms.judged else ()
    return [e for e in judged if e.operation == operation and (e.other, e.key) in shown]


def time_table(arms: Arms, operation: Operation, shown: Sequence[Series], fits: bool) -> Table:
    """Build a table of the baseline's times and the others' speed-ups, by quantity and case.

    Args:
        arms: arms of the run.
        operation: operation of the cases.
        shown: the quantities.
        fits: show all cases, else only the worst.
    """
    base, others = arms.baseline, arms.others
    cases = {series: _cases(arms, operation, metric_of(series).name, fits) for series in shown}
    found = (
        arms.judgement(other, case_id, series)
        for series, of_series in cases.items()
        for case_id in of_series
        for other in others
    )
    strips = JudgedStrips(each for each in found if each is not None)
    columns = ["Case", *(arm.name for arm in arms.all)]
    if len(others) == 1:
        columns += ["Speed-up", "Interval", "Verdict"]
    rows: list[tuple[Cell, ...] | Heading] = []
    for series, of_series in cases.items():
        rows.append(Heading(_title(metric_of(series).name)))
        for case_id in of_series:
            cells = [time_of(base, case_id, series)]
            for other in others:
                judgement = arms.judgement(other, case_id, series)
                if len(others) == 1:
                    cells += [time_of(other, case_id, series), *speed_up_cells(judgement)]
                else:
                    cells.append(_speed_up(other, case_id, judgement, len(others)))
                cells[-1] = replace(cells[-1], strip=strips.of(judgement))
            rows.append((Cell(case_id.case), *cells))
    return Table(tuple(columns), tuple(rows), num_text_columns=1, axis=strips.axis())


def launch_table(arms: Arms, operation: Operation, fits: bool) -> Table:
    """Build a table of launches per step, by case and variant."""
    rows = tuple(
        (Cell(case_id.case), *(_launches(arms, arm, case_id) for arm in arms.all))
        for case_id in _cases(arms, operation, LAUNCHES, fits)
    )
    return Table(("Case", *(arm.name for arm in arms.all)), rows, num_text_columns=1)


def launch_text(arms: Arms, operation: Operation) -> str:
    """Return a sentence on the launches of each variant over all cases; empty without counts."""
    found = []
    for arm in arms.all:
        cases = (arm.ok_case(case_id) for case_id in arms.cases_of(operation))
        counted = (case.launches.totals() for case in cases if case and case.launches)
        totals = [total for case in counted for total in case]
        if totals:
            found.append(f"{arm.name} {range_text(totals)}")
    return f"Launches per step: {', '.join(found)}." if found else ""


def spread_table(arms: Arms, operation: Operation, names: Sequence[str]) -> Table:
    """Build a table of verdicts and best, median and worst change, by metric and variant."""
    judged = judgements_of(arms, operation)
    members = {
        (name, other.name): [e for e in judged if (e.metric, e.other) == (name, other.name)]
        for name in names
        for other in arms.others
    }
    ranges = {key: found for key, each in members.items() if (found := _range_of(*each))}
    axis = axis_of(ranges.values())
    rows: list[tuple[Cell, ...] | Heading] = []
    for name in names:
        rows.append(Heading(_title(name)))
        for other in arms.others:
            if of_row := members[name, other.name]:
                *spread, worst = _spread(name, of_row)
                found = ranges.get((name, other.name))
                strip = None if found is None else Strip(axis.place(found))
                last = replace(worst, strip=strip)
                rows.append((Cell(other.name), verdicts_cell(of_row), *spread, last))
    columns = ("Variant", "Verdicts", "Best", "Median", "Worst")
    drawn = Axis(axis.ticks(), _RANGE_LEGEND) if ranges else None
    return Table(columns, tuple(rows), 2, axis=drawn)


def _range_of(*judgements: Judgement) -> SpeedUp | None:
    """Return the speed-ups in the worst, the median and the best case; `None` for counts."""
    times = [each for each in judgements if each.metric in TIMES]
    points = [found.point for found in map(speed_up_of, times) if found is not None]
    return SpeedUp(min(points), median(points), max(points)) if points else None


def _title(name: str) -> str:
    """Return `Host time, µs (host_us)`."""
    series = metric_named(name).series
    return name.capitalize() if series is None else metric_noun(series)


def _spread(name: str, members: Sequence[Judgement]) -> Iterator[Cell]:
    ratios = sorted(each.ratio for each in members if each.ratio is not None)
    if not ratios:
        yield from [Cell(ABSENT)] * 3
        return
    if metric_named(name).direction is Direction.HIGHER:
        ratios.reverse()
    for ratio in (ratios[0], median(ratios), ratios[-1]):
        yield Cell(change_text(ratio))


def _cases(arms: Arms, operation: Operation, metric: str, fits: bool) -> list[CaseId]:
    """Return all cases, or those with the worst verdicts on a metric, in the config's order."""
    cases = arms.cases_of(operation)
    if fits or arms.judged is None:
        return cases if fits else cases[:NUM_WORST]
    of_metric = tuple(each for each in judgements_of(arms, operation) if each.metric == metric)
    by_verdict = worst_first(replace(arms.judged, judgements=of_metric)).judgements
    ordered = sorted(by_verdict, key=_smallest_gain_first)
    worst = [*dict.fromkeys(each.key for each in ordered)][:NUM_WORST]
    return [case_id for case_id in cases if case_id.key in worst]


def _smallest_gain_first(each: Judgement) -> tuple[int, float]:
    """Return a key that keeps the order within other verdicts than `FASTER`."""
    is_gain = each.verdict is Verdict.FASTER and each.ratio is not None
    return WORST_FIRST.index(each.verdict), -(each.ratio or 0.0) if is_gain else 0.0


def _speed_up(
    other: ArrangedArm, case_id: CaseId, judgement: Judgement | None, columns: int
) -> Cell:
    """Return a speed-up with its interval, or the interval alone if there are many columns.

    A mark shows the verdict, unless the interval does; see `MARKS`.
    """
    if judgement is None:
        missing = other.ok_case(case_id) is None
        return no_case_cell(other, case_id) if missing else Cell(ABSENT)
    texts = speed_up_texts(judgement)
    text = texts.whole if columns <= _MOST_WITH_POINTS else texts.interval
    if judgement.evidence is None:
        note = f"{judgement.verdict}: {judgement.detail}."
        return Cell(text, note, TONES.get(judgement.verdict))
    mark = _MARKS.get(judgement.verdict, "")
    return Cell(f"{text}{mark}", tone=TONES.get(judgement.verdict))


def marked(arms: Arms, operation: Operation, tabled: Sequence[Series]) -> bool:
    """Return whether a cell of an operation's tables has a mark."""
    shown = {metric_of(series).name for series in tabled}
    return any(
        each.metric in shown and each.evidence is not None and each.verdict in _MARKS
        for each in judgements_of(arms, operation)
    )


def _launches(arms: Arms, arm: ArrangedArm, case_id: CaseId) -> Cell:
    case = arm.ok_case(case_id)
    if case is None:
        return no_case_cell(arm, case_id)
    if case.launches is None or not case.launches.steps:
        return Cell(ABSENT)
    judgement = arms.judgement_on(arm, case_id, LAUNCHES)
    tone = TONES.get(judgement.verdict) if judgement else None
    return Cell(range_text(case.launches.totals()), tone=tone)
