"""A comparison for the terminal: a summary by side and quantity, and then what changed, by case.

So that long names fit into 80 columns, the case and the sides have a line of their own, above their
metrics. What is the same is only counted, and of very many other verdicts only the worst are
listed, since nobody reads the others in a terminal and the summary would scroll away; `--all` and
other formats have them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from bt_bench.analysis import WORST_FIRST, Cause, Judged, Judgement, Overall, Verdict, tally
from bt_bench.report.console import render_plain
from bt_bench.report.document import ABSENT, Block, Bullets, Cell, Document, Heading, Section, Table
from bt_bench.report.formats.arrange import worst_first
from bt_bench.report.formats.judged_document import lead_of, missed_lines, needs_words
from bt_bench.report.formats.phrases import sentences
from bt_bench.report.formats.texts import (
    TONES,
    cause_text,
    change_text,
    interval_text,
    range_texts,
    side_text,
    value_text,
)

MAX_LISTED = 60
"""How many verdicts are listed unless all are asked for; the summary counts all of them."""

_MOST_SENTENCES = 12

_UNITS = "times in us; change, interval, margin and detection limit in percent of the base"


def render_table(judged: Judged, whole: bool = False) -> str:
    """The text that a file or a pipe gets; see `verdict_document`."""
    return render_plain(verdict_document(judged, whole))


def verdict_document(judged: Judged, whole: bool = False) -> Document:
    """The summary, and the verdicts by case.

    Args:
        judged: the comparison.
        whole: list all verdicts, also what is the same, and summarise each metric for itself.
    """
    sections = []
    if judged.judgements:
        blocks: list[Block] = [_summary_table(judged, whole)]
        listed = judged.judgements if whole else _listed(judged)
        if len(listed) < len(judged.judgements):
            blocks.append(
                f"Showing {len(listed)} of {len(judged.judgements)} verdicts: SAME is omitted, "
                "primary times come first, then the worst. `compare --all` and the formats md, csv "
                "and json have them all."
            )
        title = "By metric: changes in percent over the cases, and their geometric mean"
        sections.append(Section(title, tuple(blocks)))
        for title, exploratory in (("By case", False), ("By case, exploratory metrics", True)):
            members = [each for each in listed if each.exploratory is exploratory]
            if members:
                sections.append(Section(f"{title}: {_UNITS}", (_verdict_table(members),)))
    if judged.facts:
        sections.append(Section("How it was compared", (Bullets(judged.facts),)))
    # The summary comes first; how it was done would fill half of a terminal.
    lead = [*lead_of(replace(judged, facts=()))]
    told = tuple(sentences(judged.judgements))
    if 0 < len(told) <= _MOST_SENTENCES:
        lead.insert(len(missed_lines(judged)), Bullets(told))
    return Document(judged.title, tuple(lead), tuple(sections))


def _listed(judged: Judged) -> Sequence[Judgement]:
    """What is not the same: if that is too much, primary times and the worst; in their order."""
    changed = [each for each in judged.judgements if each.verdict is not Verdict.SAME]
    if len(changed) <= MAX_LISTED:
        return changed
    ordered = sorted(
        worst_first(replace(judged, judgements=tuple(changed))).judgements,
        key=lambda each: not _is_primary_time(each),
    )
    kept = {id(each) for each in ordered[:MAX_LISTED]}
    return [each for each in changed if id(each) in kept]


def _is_primary_time(judgement: Judgement) -> bool:
    """Counts are primary as well, but there are many, and few of them change."""
    return not judgement.exploratory and judgement.cause is not Cause.EXACT


def _summary_table(judged: Judged, whole: bool) -> Table:
    """A row for each side and metric; of exploratory metrics, for each quantity."""
    means = {(each.base, each.other, each.metric): each for each in judged.overall}
    sides: dict[str, dict[str, list[Judgement]]] = {}
    for each in judged.judgements:
        name = each.metric if whole or not each.exploratory else _quantity(each.metric)
        sides.setdefault(_sides(each), {}).setdefault(name, []).append(each)
    rows: list[tuple[Cell, ...] | Heading] = []
    for heading, groups in sides.items():
        rows.append(Heading(heading))
        rows += [_summary_row(name, members, means) for name, members in groups.items()]
    columns = ("Metric", "Verdicts", "Changes", "Mean", "Interval")
    return Table(columns, tuple(rows), num_text_columns=2)


def _quantity(metric: str) -> str:
    """The quantity of a measured metric with a mark that it is one of several: `host_us/…`."""
    quantity, slash, _ = metric.partition("/")
    return f"{quantity}/…" if slash and "+" not in metric else metric


def _summary_row(
    name: str,
    members: Sequence[Judgement],
    means: Mapping[tuple[str, str, str], Overall],
) -> tuple[Cell, ...]:
    ratios = [each.ratio for each in members if each.ratio is not None]
    first = members[0]
    mean = means.get((first.base, first.other, name))
    return (
        Cell(name),
        verdicts_cell(members),
        Cell(_range_text(ratios)),
        Cell(change_text(mean.ratio if mean else None)),
        Cell(interval_text(mean.low, mean.high) if mean else ABSENT),
    )


def verdicts_cell(members: Sequence[Judgement]) -> Cell:
    """How many have which verdict, in the colour of the worst; of one or more judgements."""
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
