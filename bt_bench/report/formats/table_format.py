"""A comparison for the terminal: one screen on who won; the rest with `--all`.

First come sentences, then as many of the worst verdicts as fit. In the table of all verdicts, case
and sides have a line of their own above their metrics: long names fit into 80 columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from bt_bench.analysis import WORST_FIRST, Cause, Judged, Judgement, Overall, Verdict, tally
from bt_bench.base import ABSENT, Bullets, Cell, Document, Heading, Section, Table
from bt_bench.report.console import render_plain
from bt_bench.report.formats.judged_document import MOST_SENTENCES, lead_of, needs_words, worst_of
from bt_bench.report.formats.judged_strips import JudgedStrips
from bt_bench.report.formats.phrases import is_factor, sentences
from bt_bench.report.formats.texts import (
    TONES,
    cause_text,
    change_text,
    interval_text,
    range_texts,
    side_text,
    speed_up_texts,
    value_text,
)

_ADVISORY = "Advisory: the sides are of different runs, between which a host's speed changes."

MAX_LISTED = 16
"""Most verdicts that the first screen lists."""

_UNITS = "times in µs; change, interval, margin and detection limit in percent of the base"


def render_table(judged: Judged, whole: bool = False) -> str:
    """Return the text for a file or a pipe; see `verdict_document`."""
    return render_plain(verdict_document(judged, whole))


def verdict_document(judged: Judged, whole: bool = False) -> Document:
    """Build a comparison for a terminal.

    Args:
        judged: the comparison.
        whole: list all verdicts by case, summarise each metric for itself, and give the rules of
            decision; else only one screen.
    """
    title = f"{judged.title}: {judged.subject}" if judged.subject else judged.title
    document = _whole_document(judged) if whole else _brief_document(judged)
    return replace(document, title=title)


def _whole_document(judged: Judged) -> Document:
    sections = []
    if judged.judgements:
        title = "By metric: changes in percent over the cases, and their geometric mean"
        table = _summary_table(judged.judgements, judged.overall, by_quantity=False)
        sections.append(Section(title, (table,)))
        for title, exploratory in (("By case", False), ("By case, exploratory metrics", True)):
            members = [each for each in judged.judgements if each.exploratory is exploratory]
            if members:
                sections.append(Section(f"{title}: {_UNITS}", (_verdict_table(members),)))
    if judged.facts:
        sections.append(Section("How it was compared", (Bullets(judged.facts),)))
    return Document(judged.title, lead_of(judged, worst_of(judged)), tuple(sections))


def _brief_document(judged: Judged) -> Document:
    deciding = judged.deciding
    listed, rest = worst_verdicts(deciding)
    if judged.sorted_by:
        place = {id(each): index for index, each in enumerate(judged.judgements)}
        listed.sort(key=lambda members: min(place[id(each)] for each in members))
    exploratory = "exploratory metrics" if len(deciding) < len(judged.judgements) else ""
    left_out = " and ".join(filter(None, (rest, exploratory)))
    not_listed = f"Not listed: {left_out}. " if left_out else ""
    more = f"{not_listed}All verdicts, and the rules behind them: --all, or --format md."
    sections = []
    if len([*sentences(judged.judgements)]) > MOST_SENTENCES:
        table = _summary_table(deciding, (), by_quantity=True)
        sections.append(Section("By metric: changes in percent over the cases", (table,)))
    if listed:
        title = "Worst first" if rest else "By case"
        if judged.sorted_by:
            title = f"The worst, by {judged.sorted_by}" if rest else f"By {judged.sorted_by}"
        sections.append(Section(f"{title}: {worst_caption(listed)}", (worst_table(listed), more)))
    lead = lead_of(judged, ())
    if any(each.advisory for each in judged.judgements):
        lead = (*lead, _ADVISORY)
    lead = lead if listed else (*lead, more)
    return Document(judged.title, lead, tuple(sections))


def worst_verdicts(
    deciding: Sequence[Judgement], most: int = MAX_LISTED
) -> tuple[list[list[Judgement]], str]:
    """Return the verdicts to list, the worst first, alike ones together, and a tally of the rest.

    Verdicts are alike if they rest on no figure, and have the same sides, metric and reason.
    INVALID or MISSING ones for one reason are listed once for all metrics and sides, for example if
    the base has failed.

    Args:
        deciding: the verdicts that decide.
        most: the largest number of lines.
    """
    alike: dict[object, list[Judgement]] = {}
    for each in sorted(deciding, key=_badness):
        if each.verdict is Verdict.SAME:
            continue
        reason: object = each.verdict, each.detail or each.cause
        if each.verdict not in (Verdict.INVALID, Verdict.MISSING):
            reason = each.base, each.other, each.metric, reason
        has_figure = each.ratio is not None or each.cause is Cause.EXACT
        alike.setdefault(id(each) if has_figure else reason, []).append(each)
    listed = [*alike.values()][:most]
    kept = {id(each) for members in listed for each in members}
    rest = [each for each in deciding if id(each) not in kept]
    return listed, tally(rest) if rest else ""


def _badness(judgement: Judgement) -> tuple[int, bool, float]:
    """Return a sort key: by verdict, then times before counts, then the largest increase first.

    Thus neither many counts nor many small changes keep a large slowdown off the first screen.
    """
    # An increase from zero has no ratio, and comes before all that have one.
    change = -math.inf if judgement.ratio is None else -judgement.ratio
    return WORST_FIRST.index(judgement.verdict), judgement.cause is Cause.EXACT, change


def worst_table(listed: Sequence[Sequence[Judgement]]) -> Table:
    """Build a table with a row for each verdict; if sides differ, each has a heading.

    Args:
        listed: verdicts by line, see `worst_verdicts`.
    """
    has_limit, in_percent = _is_open(listed), _in_percent(listed)
    strips = JudgedStrips(each for members in listed for each in members)
    columns = ("Verdict", "Case", "Metric", "Base", "Other", "Change", "Limit")
    rows: list[tuple[Cell, ...] | Heading] = []
    sides: dict[str, list[Sequence[Judgement]]] = {}
    for members in listed:
        sides.setdefault(_all_sides(members), []).append(members)
    for title, of_side in sides.items():
        if len(sides) > 1:
            rows.append(Heading(title))
        cells = [_brief_row(members, strips, in_percent=in_percent) for members in of_side]
        rows += cells if has_limit else (row[:-1] for row in cells)
    shown = columns if has_limit else columns[:-1]
    axis = strips.legible_axis(in_percent=in_percent)
    return Table(shown, tuple(rows), num_text_columns=3, notes_at_rows=True, axis=axis)


def _is_open(listed: Sequence[Sequence[Judgement]]) -> bool:
    return any(each.verdict is Verdict.INCONCLUSIVE for members in listed for each in members)


def worst_caption(listed: Sequence[Sequence[Judgement]]) -> str:
    """Return a caption on the units of a table of `worst_table`."""
    changes = "changes in percent" if _in_percent(listed) else "speed-ups"
    # Such changes do not follow from the two medians beside them.
    paired = any(each.evidence and not each.advisory for members in listed for each in members)
    changes += " from pairs of rounds," * paired
    limit = ", and the smallest slowdown that would have been detected" * _is_open(listed)
    return f"times in µs; {changes} with their interval{limit}"


def _in_percent(listed: Sequence[Sequence[Judgement]]) -> bool:
    """Return whether no change is so large that the sentences give it as a factor."""
    every = (each for members in listed for each in members)
    timed = (each for each in every if each.cause is not Cause.EXACT)
    decided = (each for each in timed if each.verdict in (Verdict.FASTER, Verdict.SLOWER))
    return not any(each.ratio and each.ratio > 0 and is_factor(each.ratio) for each in decided)


def _change(judgement: Judgement, *, in_percent: bool) -> str:
    if not in_percent and judgement.cause is not Cause.EXACT:
        texts = speed_up_texts(judgement)
        return f"{texts.point} ×" if texts.interval == ABSENT != texts.point else texts.whole
    text, interval = change_text(judgement.ratio), range_texts(judgement).interval
    if interval != ABSENT:
        return f"{text} ({interval})"
    return text if in_percent or text == ABSENT else f"{text} %"


def _brief_row(
    members: Sequence[Judgement], strips: JudgedStrips, *, in_percent: bool
) -> tuple[Cell, ...]:
    judgement, more = members[0], len({each.key for each in members}) - 1
    is_one = len(members) == 1
    why = (judgement.detail or cause_text(judgement)) if needs_words(judgement) else None
    change, limit = _change(judgement, in_percent=in_percent), range_texts(judgement).limit
    return (
        Cell(judgement.word, why, TONES.get(judgement.verdict)),
        Cell(f"{judgement.key} and {more} more" if more else judgement.key),
        Cell(_few(dict.fromkeys(each.metric for each in members))),
        Cell(value_text(judgement.base_value if is_one else None, judgement.unit)),
        Cell(value_text(judgement.other_value if is_one else None, judgement.unit)),
        Cell(change, strip=strips.of(judgement) if is_one else None),
        Cell(limit if in_percent or limit == ABSENT else f"{limit} %"),
    )


def _few(names: Iterable[str]) -> str:
    """Return up to two names, or the first and the number of others."""
    first, *others = names
    return f"{first} and {len(others)} more" if len(others) > 1 else ", ".join([first, *others])


def _summary_table(
    judgements: Sequence[Judgement], overall: Sequence[Overall], *, by_quantity: bool
) -> Table:
    """Build a table with a row for each metric, under a heading for each operation and side.

    Args:
        judgements: the verdicts.
        overall: means, by operation, metric and side; without any, there is no column of means.
        by_quantity: merge exploratory metrics into one row for each quantity.
    """
    means = {(each.operation, each.base, each.other, each.metric): each for each in overall}
    groups: dict[str, dict[str, list[Judgement]]] = {}
    for each in judgements:
        grouped = by_quantity and each.exploratory
        name = _quantity(each.metric) if grouped else each.metric
        heading = f"{each.operation} · {_sides(each)}"
        groups.setdefault(heading, {}).setdefault(name, []).append(each)
    rows: list[tuple[Cell, ...] | Heading] = []
    for heading, of_metric in groups.items():
        rows.append(Heading(heading))
        for name, members in of_metric.items():
            first = members[0]
            mean = means.get((first.operation, first.base, first.other, name))
            cells = _summary_row(name, members, mean)
            rows.append(cells if overall else cells[:3])
    columns = ("Metric", "Verdicts", "Changes", "Mean", "Interval")
    return Table(columns if overall else columns[:3], tuple(rows), num_text_columns=2)


def _quantity(metric: str) -> str:
    """Return the quantity of a metric, marked if the metric is one of several: `host_us/…`."""
    quantity, slash, _ = metric.partition("/")
    return f"{quantity}/…" if slash and "+" not in metric else metric


def _summary_row(name: str, members: Sequence[Judgement], mean: Overall | None) -> tuple[Cell, ...]:
    ratios = [each.ratio for each in members if each.ratio is not None]
    return (
        Cell(name),
        verdicts_cell(members),
        Cell(_range_text(ratios)),
        Cell(change_text(mean.ratio if mean else None)),
        Cell(interval_text(mean.low, mean.high) if mean else ABSENT),
    )


def verdicts_cell(members: Sequence[Judgement]) -> Cell:
    """Return a tally of one or more judgements, in the colour of the worst."""
    worst = min(members, key=lambda each: WORST_FIRST.index(each.verdict))
    return Cell(tally(members), tone=TONES.get(worst.verdict))


def _range_text(ratios: Sequence[float]) -> str:
    low, high = (change_text(most(ratios, default=None)) for most in (min, max))
    return low if low == high else f"{low} to {high}"


def _verdict_table(judgements: Sequence[Judgement]) -> Table:
    columns = ("Verdict", "Metric", "Base", "Other", "%", "Low", "High", "Margin", "Limit")
    rows: list[tuple[Cell, ...] | Heading] = []
    for title, group in groupby(judgements, _group_title):
        rows += [Heading(title), *map(_row, group)]
    return Table(columns, tuple(rows), num_text_columns=2, notes_at_rows=True)


def _row(judgement: Judgement) -> tuple[Cell, ...]:
    texts = range_texts(judgement)
    why = (judgement.detail or cause_text(judgement)) if needs_words(judgement) else None
    return (
        Cell(judgement.word, why, TONES.get(judgement.verdict)),
        Cell(judgement.metric),
        Cell(value_text(judgement.base_value, judgement.unit)),
        Cell(value_text(judgement.other_value, judgement.unit)),
        Cell(change_text(judgement.ratio)),
        *map(Cell, (texts.low, texts.high, texts.margin, texts.limit)),
    )


def _group_title(judgement: Judgement) -> str:
    advisory = " (advisory)" if judgement.advisory else ""
    return f"{judgement.key} · {_sides(judgement)}{advisory}"


def _sides(each: Judgement) -> str:
    return side_text(each.base, each.other)


def _all_sides(members: Sequence[Judgement]) -> str:
    """Return the sides of verdicts that are alike: `fused, one_launch against baseline`."""
    others, bases = (
        ", ".join(dict.fromkeys(labels))
        for labels in zip(*((each.other, each.base) for each in members), strict=True)
    )
    return side_text(bases, others)
