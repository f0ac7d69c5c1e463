"""A comparison for the terminal: verdicts by case.

So that long names fit into 80 columns, the case and the sides have a line of their own, above their
metrics. If there are very many verdicts, only the worst are listed, since nobody reads the others
in a terminal and the summary would scroll away; other formats have them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from bt_bench.analysis import Cause, Judged, Judgement, Overall
from bt_bench.report.console import render_plain
from bt_bench.report.document import Block, Cell, Document, Heading, Section, Table
from bt_bench.report.formats.arrange import worst_first
from bt_bench.report.formats.judged_document import lead_of, needs_words
from bt_bench.report.formats.texts import (
    TONES,
    cause_text,
    change_text,
    interval_text,
    margin_text,
    side_text,
    value_text,
)

MAX_LISTED = 60
"""How many verdicts are listed; the summary counts all of them."""

_UNITS = "times in us; change, interval and margin in percent of the base"


def render_table(judged: Judged) -> str:
    """The text that a file or a pipe gets."""
    return render_plain(verdict_document(judged))


def verdict_document(judged: Judged) -> Document:
    """The summary, the geometric means by side, and the verdicts by case."""
    sections = []
    if judged.overall:
        title = "Geometric mean over cases: change in percent, interval"
        sections.append(Section(title, (_overall_table(judged.overall),)))
    if judged.judgements:
        listed = _listed(judged)
        cut = (
            f"Listed are {len(listed)} of {len(judged.judgements)} verdicts, primary times and "
            "then the worst; --metric narrows what is judged, and --format md, csv or json has "
            "them all."
        )
        is_cut = len(listed) < len(judged.judgements)
        for title, exploratory in (("By case", False), ("By case, exploratory metrics", True)):
            members = [each for each in listed if each.exploratory is exploratory]
            if members:
                table = _verdict_table(members)
                blocks: tuple[Block, ...] = (cut, table) if is_cut else (table,)
                sections.append(Section(f"{title}: {_UNITS}", blocks))
                is_cut = False
    return Document(judged.title, lead_of(judged), tuple(sections))


def _listed(judged: Judged) -> Sequence[Judgement]:
    """If there are too many, primary times and the worst of the rest, in their original order."""
    if len(judged.judgements) <= MAX_LISTED:
        return judged.judgements
    ordered = sorted(worst_first(judged).judgements, key=lambda each: not _is_primary_time(each))
    kept = {id(each) for each in ordered[:MAX_LISTED]}
    return [each for each in judged.judgements if id(each) in kept]


def _is_primary_time(judgement: Judgement) -> bool:
    """Counts are primary as well, but there are many, and few of them change."""
    return not judgement.exploratory and judgement.cause is not Cause.EXACT


def _overall_table(overall: Sequence[Overall]) -> Table:
    rows: list[tuple[Cell, ...] | Heading] = []
    for sides, members in groupby(sorted(overall, key=_sides), _sides):
        rows.append(Heading(sides))
        rows += (
            (
                Cell(each.metric),
                Cell(change_text(each.ratio)),
                Cell(interval_text(each.low, each.high)),
                Cell(str(each.cases)),
            )
            for each in members
        )
    return Table(("Metric", "%", "Interval", "Cases"), tuple(rows), num_text_columns=1)


def _verdict_table(judgements: Sequence[Judgement]) -> Table:
    columns = ("Verdict", "Metric", "Base", "Other", "%", "Interval", "Margin")
    rows: list[tuple[Cell, ...] | Heading] = []
    for title, group in groupby(judgements, _group_title):
        rows += [Heading(title), *map(_row, group)]
    return Table(columns, tuple(rows), num_text_columns=2, notes_at_rows=True)


def _row(judgement: Judgement) -> tuple[Cell, ...]:
    why = (judgement.detail or cause_text(judgement)) if needs_words(judgement) else None
    return (
        Cell(judgement.verdict.value, why, TONES.get(judgement.verdict)),
        Cell(judgement.metric),
        Cell(value_text(judgement.base_value, judgement.unit)),
        Cell(value_text(judgement.other_value, judgement.unit)),
        Cell(change_text(judgement.ratio)),
        Cell(interval_text(judgement.low, judgement.high)),
        Cell(margin_text(judgement)),
    )


def _group_title(judgement: Judgement) -> str:
    advisory = " (advisory)" if judgement.advisory else ""
    return f"{judgement.key} · {_sides(judgement)}{advisory}"


def _sides(each: Judgement | Overall) -> str:
    return side_text(each.base, each.other)
