"""The large table of a page: a row for each case and variant, with intervals drawn into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bt_bench.analysis import WHOLE_CASE, Judgement, Verdict
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
from bt_bench.report.page.speed_ups import arm_index, metric_title

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
        name = side_text(each.base, each.other) if several_bases else each.other
        rows.setdefault((each.key, each.case, name), {})[each.metric] = each
    counted = [name for name in dict.fromkeys(each.metric for each in deciding) if name == LAUNCHES]
    columns = [GridColumn("Case"), GridColumn("Operation"), GridColumn("Variant")]
    for name in metrics:
        title = metric_title(name)
        columns.append(GridColumn(f"{title[0].upper()}{title[1:]}, µs", numeric=True))
        columns += [GridColumn("Speed-up", numeric=True), GridColumn("Verdict")]
    columns += [GridColumn(_counted_title(name, deciding), numeric=True) for name in counted]
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
        cells += [_counted_cell(of_row.get(name)) for name in counted]
        built.append(tuple(cells))
    return Grid(
        title="All cases",
        caption=f"{len(built)} rows, a row for each case and variant. Sort by a column's title; "
        "open a case by its name. Strips show the interval that a verdict rests on.",
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
    why = judgement.detail if judgement.verdict in (Verdict.INVALID, Verdict.MISSING) else ""
    yield GridCell(verdict_text(judgement), small=why, tone=TONES.get(judgement.verdict))


def _counted_title(name: str, judgements: Sequence[Judgement]) -> str:
    unit = next(each.unit for each in judgements if each.metric == name)
    title = name.replace("_", " ").capitalize()
    return title if unit_text(unit) in ("", name, "binaries") else f"{title}, {unit_text(unit)}"


def _counted_cell(judgement: Judgement | None) -> GridCell:
    if judgement is None:
        return GridCell(ABSENT)
    base, other = (
        value_text(value, judgement.unit) for value in (judgement.base_value, judgement.other_value)
    )
    tone = TONES.get(judgement.verdict)
    return GridCell(other, small=f"of {base}", tone=tone)
