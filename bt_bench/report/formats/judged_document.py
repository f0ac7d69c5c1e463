"""A comparison as a document, for Markdown and HTML."""

from __future__ import annotations

from collections.abc import Sequence

from bt_bench.analysis import Cause, Judged, Judgement, Overall, Verdict, tally_of
from bt_bench.base import Block, Bullets, Cell, Document, Section, Table
from bt_bench.report.formats.arrange import worst_first
from bt_bench.report.formats.phrases import sentences
from bt_bench.report.formats.texts import (
    cause_text,
    change_text,
    clean,
    headline,
    interval_text,
    range_texts,
    side_text,
    value_text,
    verdict_text,
)

MAX_WORST = 5

MOST_SENTENCES = 8
"""Most sentences that a comparison begins with; if there would be more, it has none."""

LEGEND = (
    "Changes and intervals are in percent of the base, positive for more. Times are in µs. Where "
    "there are rounds, the change comes from pairs of rounds, not just from the two medians. "
    "SLOWER and FASTER: the whole interval lies beyond the margin. SAME: it lies within. Limit: "
    "the smallest slowdown that would have been found with 99 %."
)


def judged_document(judged: Judged, max_listed: int | None = None) -> Document:
    """Build a comparison for a page: who won, the verdicts, the reasons; the method comes last.

    Args:
        judged: the comparison.
        max_listed: number of judgements listed, from the first on; all if `None`.
    """
    listed = judged.judgements[:max_listed]
    sections = []
    if len(listed) < len(judged.judgements):
        cut = (
            f"Too long to be shown whole: {len(listed)} of {len(judged.judgements)} are listed; "
            "the formats csv and json have all."
        )
        sections.append(Section("Cut", (cut,)))
    for title, exploratory in (("Verdicts", False), ("Exploratory verdicts", True)):
        members = [each for each in listed if each.exploratory is exploratory]
        if members:
            blocks = (_judgement_table(members), LEGEND)
            sections.append(Section(title, blocks, folded=exploratory))
    details = _details(listed)
    if details:
        sections.append(Section("Details", (Bullets(details),)))
    if judged.overall:
        title = "Geometric mean over cases"
        sections.append(Section(title, (_overall_table(judged.overall),), folded=True))
    if judged.facts:
        sections.append(Section("How it was compared", (Bullets(judged.facts),), folded=True))
    title = f"{judged.title}: {judged.subject}" if judged.subject else judged.title
    return Document(title, lead_of(judged, worst_of(judged)), tuple(sections))


def worst_of(judged: Judged) -> tuple[Judgement, ...]:
    """Return the worst regressions, unless the judgements are already sorted worst first."""
    ordered = worst_first(judged).judgements
    if ordered == judged.judgements:
        return ()
    slower = [each for each in ordered if each.verdict is Verdict.SLOWER]
    return tuple(slower[:MAX_WORST])


def summary_lines(judged: Judged) -> list[str]:
    """Return the sentences that reports begin with: the counts, their scope, the warnings.

    `missed_lines` stand before them.
    """
    return [
        *missed_lines(judged),
        f"Verdicts: {tally_of(judged)}.",
        *judged.scope,
        *(f"Warning: {warning}." for warning in judged.warnings),
    ]


def missed_lines(judged: Judged) -> list[str]:
    """Return the sentences that come first: the gate's blind spots, and a lack of power."""
    power = judged.power
    missed = [power.sentence] if power is not None and power.falls_short else []
    return [*filter(None, [judged.unseen]), *missed]


def lead_of(judged: Judged, worst: Sequence[Judgement]) -> tuple[Block, ...]:
    """Build the lead of a report: who won, failed self-checks, counts and scope, regressions.

    Args:
        judged: the comparison.
        worst: see `worst_of`; empty if a table begins with them.
    """
    missed = missed_lines(judged)
    counts, *others = summary_lines(judged)[len(missed) :]
    told = tuple(sentences(judged.judgements))
    lead: list[Block] = [*missed]
    if 0 < len(told) <= MOST_SENTENCES:
        lead.append(Bullets(told))
    lead += map(clean, judged.self_checks)
    lead.append(counts)
    if others:
        lead.append(Bullets(tuple(others)))
    if worst:
        lead += ["Worst regressions:", Bullets(tuple(map(headline, worst)))]
    return tuple(lead)


def _overall_table(overall: Sequence[Overall]) -> Table:
    rows = tuple(
        (
            Cell(f"{each.operation} {each.metric}"),
            Cell(side_text(each.base, each.other)),
            Cell(str(each.cases)),
            Cell(change_text(each.ratio)),
            Cell(interval_text(each.low, each.high)),
        )
        for each in overall
    )
    return Table(("Metric", "Side", "Cases", "Change (%)", "Interval (%)"), rows, 2)


def _judgement_table(judgements: Sequence[Judgement]) -> Table:
    sides = {(each.base, each.other) for each in judgements}
    one_side = len(sides) == 1
    labels = (judgements[0].base, judgements[0].other) if one_side else ("Base", "Other")
    columns = (
        *("Verdict", "Why", "Case"),
        *(() if one_side else ("Side",)),
        "Metric",
        *map(clean, labels),
        *("Change (%)", "Interval (%)", "Margin (%)", "Limit (%)"),
    )
    rows = tuple(_row(each, one_side) for each in judgements)
    return Table(columns, rows, num_text_columns=4 if one_side else 5)


def _row(judgement: Judgement, one_side: bool) -> tuple[Cell, ...]:
    texts = range_texts(judgement)
    side = () if one_side else (Cell(side_text(judgement.base, judgement.other)),)
    return (
        Cell(verdict_text(judgement)),
        Cell(_why(judgement)),
        Cell(judgement.key),
        *side,
        Cell(judgement.metric),
        Cell(value_text(judgement.base_value, judgement.unit)),
        Cell(value_text(judgement.other_value, judgement.unit)),
        Cell(change_text(judgement.ratio)),
        *map(Cell, (texts.interval, texts.margin, texts.limit)),
    )


def _why(judgement: Judgement) -> str:
    """Return the cause; for equal counts also the detail, as different kernels may be counted."""
    equal_counts = judgement.cause is Cause.EXACT and judgement.verdict is Verdict.SAME
    detail = f": {judgement.detail}" if equal_counts and judgement.detail else ""
    return f"{cause_text(judgement)}{detail}"


def needs_words(judgement: Judgement) -> bool:
    """Return whether a judgement needs a reason in words: without statistics, or if slower."""
    return judgement.evidence is None or judgement.verdict is Verdict.SLOWER


def _details(judgements: Sequence[Judgement]) -> tuple[str, ...]:
    return tuple(
        f"{verdict_text(each)} {headline(each)}: {each.detail}."
        for each in judgements
        if each.verdict is not Verdict.SAME and needs_words(each)
    )
