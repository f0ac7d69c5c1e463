"""The large table of a page: a row for each case and variant, with intervals drawn into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bt_bench.analysis import WHOLE_CASE, WORST_FIRST, Judgement, Verdict
from bt_bench.base import ABSENT, unit_text
from bt_bench.base.names import Operation
from bt_bench.report.axis import LogAxis, axis_of, speed_up_of
from bt_bench.report.formats.phrases import TIMES
from bt_bench.report.formats.texts import (
    TONES,
    side_text,
    speed_up_texts,
    value_text,
    verdict_text,
)
from bt_bench.report.page.parts import Grid, GridCell, GridColumn
from bt_bench.report.page.speed_ups import arm_index, metric_heading
from bt_bench.results import COUNTED

LAUNCHES = "launches"

Anchor = Callable[[str], str | None]
"""Returns the id of the part of the page on a case, by its key; `None` if it has none."""


def judged_grid(judgements: Sequence[Judgement], arms: Sequence[str], anchor: Anchor) -> Grid:
    """Build the table of the verdicts that decide.

    Args:
        judgements: the verdicts; exploratory ones are left out.
        arms: names of the arms, in the order of their colours.
        anchor: finds the case that a row opens.
    """
    deciding = [each for each in judgements if not each.exploratory]
    metrics = [name for name in TIMES if any(each.metric == name for each in deciding)]
    speed_ups = [speed_up_of(each) for each in deciding if each.metric in metrics]
    axis = axis_of(found for found in speed_ups if found is not None)
    several_bases = len({each.base for each in deciding}) > 1
    rows: dict[tuple[str, str, str], dict[str, Judgement]] = {}
    for each in deciding:
        name = _named(each) if several_bases else each.other
        rows.setdefault((each.key, each.case, name), {})[each.metric] = each
    # Beside times, launches alone: the other counts explain them at best.
    counted = [
        name
        for name in ([LAUNCHES] if metrics else COUNTED)
        if any(_counts(each, name) for each in deciding)
    ]
    columns = [GridColumn("Case"), GridColumn("Operation"), GridColumn("Variant")]
    for name in metrics:
        columns.append(GridColumn(f"{metric_heading(name)}, µs", numeric=True))
        columns += [GridColumn("Speed-up", numeric=True), GridColumn("Verdict")]
    columns += [GridColumn(_counted_title(name), numeric=True) for name in counted]
    if not metrics:
        columns.append(GridColumn("Verdict"))
    built = []
    for (key, case, name), of_row in rows.items():
        whole = of_row.get(WHOLE_CASE.name)
        first = next(iter(of_row.values()))
        cells = [
            GridCell(case, link=anchor(key)),
            GridCell(operation_title(first.operation)),
            GridCell(name),
        ]
        for metric in metrics:
            cells += _time_cells(of_row.get(metric, whole), axis, arm_index(arms, first.other))
        for name in counted:
            cells.append(_counted_cell([each for each in of_row.values() if _counts(each, name)]))
        if not metrics:
            cells.append(_verdict_cell(_worst([*of_row.values()])))
        built.append(tuple(cells))
    return Grid(
        title="All cases",
        caption=f"A row for each case and variant, {len(built)} in all. Sort by a column's title; "
        "open a case by its name."
        + " Strips show the interval that a verdict rests on."
        * bool(metrics),
        columns=tuple(columns),
        rows=tuple(built),
        one=axis.at(1.0) if metrics else None,
    )


def operation_title(operation: Operation) -> str:
    """Return the title of an operation, or its name if its suite is not known."""
    return operation.traits.title if operation.is_known else operation.name


def _time_cells(judgement: Judgement | None, axis: LogAxis, arm: int) -> Iterator[GridCell]:
    if judgement is None:
        yield from [GridCell(ABSENT)] * 3
        return
    base = value_text(judgement.base_value, judgement.unit)
    yield GridCell(
        value_text(judgement.other_value, judgement.unit),
        small=f"of {base}" if base != ABSENT else "",
    )
    speed_up = speed_up_of(judgement)
    texts = speed_up_texts(judgement)
    yield GridCell(
        ABSENT if texts.point == ABSENT else f"{texts.point} ×",
        small="" if texts.interval == ABSENT else texts.interval,
        strip=None if speed_up is None else axis.place(speed_up),
        arm=arm,
    )
    yield _verdict_cell(judgement)


def _verdict_cell(judgement: Judgement) -> GridCell:
    why = judgement.detail if judgement.verdict in (Verdict.INVALID, Verdict.MISSING) else ""
    return GridCell(verdict_text(judgement), small=why, tone=TONES.get(judgement.verdict))


def _worst(judgements: Sequence[Judgement]) -> Judgement:
    return min(judgements, key=lambda each: WORST_FIRST.index(each.verdict))


def _named(judgement: Judgement) -> str:
    """Return the variant if it is compared with its other revision, else both sides."""
    (base, _, _), (other, at, _) = (
        side.partition("@") for side in (judgement.base, judgement.other)
    )
    return other if at and base == other else side_text(judgement.base, judgement.other)


def _counts(judgement: Judgement, name: str) -> bool:
    """Return whether it is on a count, for all targets or one of them, as `registers/sm_90`."""
    return judgement.metric.partition("/")[0] == name


def _counted_title(name: str) -> str:
    title, unit = name.replace("_", " ").capitalize(), unit_text(COUNTED[name].unit)
    return title if unit in ("", name, "binaries") else f"{title}, {unit}"


def _counted_cell(judgements: Sequence[Judgement]) -> GridCell:
    if not judgements:
        return GridCell(ABSENT)
    worst = _worst(judgements)
    base, other = (value_text(value, worst.unit) for value in (worst.base_value, worst.other_value))
    target = worst.metric.partition("/")[2]
    where = f", {target}" if target else ""
    small = f"of {base}{where}" if base != ABSENT else ""
    return GridCell(other, small=small, tone=TONES.get(worst.verdict))
