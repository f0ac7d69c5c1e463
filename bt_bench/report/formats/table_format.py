"""A comparison for the terminal: verdicts by case, each line within 80 columns.

No cell is ever folded. So that long names fit, the case and the sides have a line of their own,
above their metrics. If there are very many verdicts, only the worst are listed, since nobody reads
the others in a terminal and the summary would scroll away; other formats have them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.cells import cell_len

from bt_bench.analysis import Judged, Judgement, Overall
from bt_bench.report.formats.arrange import worst_first
from bt_bench.report.formats.judged_document import needs_words, summary_lines, worst_of
from bt_bench.report.formats.plain import WIDTH, aligned, inert, wrapped
from bt_bench.report.formats.texts import (
    cause_text,
    change_text,
    clean,
    headline,
    interval_text,
    margin_text,
    side_text,
    value_text,
)

_HEADINGS = ("Verdict", "Metric", "Base", "Other", "%")
_TESTED_HEADINGS = ("Interval", "Margin")
_INDENT = "  "
_DETAIL_INDENT = "      "

MAX_LISTED = 60
"""How many verdicts are listed; the summary counts all of them."""


def render_table(judged: Judged) -> str:
    """The text that a terminal or a pipe gets."""
    lines = [*wrapped(judged.title), ""]
    counts, *others = summary_lines(judged)
    lines += wrapped(counts)
    for text in others:
        lines += wrapped(text, "  ", first="- ")
    worst = worst_of(judged)
    if worst:
        lines += ["", "Worst regressions"]
        for each in worst:
            lines += wrapped(headline(each), "  ", first="- ")
    if judged.overall:
        lines += ["", "Geometric mean over cases: change in percent, interval"]
        lines += _overall(judged.overall)
    if judged.judgements:
        listed = _listed(judged)
        lines += ["", "By case: times in us; change, interval and margin in percent of the base"]
        if len(listed) < len(judged.judgements):
            lines += wrapped(
                f"Listed are the {len(listed)} worst of {len(judged.judgements)} verdicts; "
                "--metric narrows what is judged, and --format md, csv or json has them all."
            )
        lines += _verdicts(listed)
    return inert("\n".join(lines) + "\n")


def _listed(judged: Judged) -> Sequence[Judgement]:
    """The worst if there are too many, in their original order."""
    if len(judged.judgements) <= MAX_LISTED:
        return judged.judgements
    worst = {id(each) for each in worst_first(judged).judgements[:MAX_LISTED]}
    return [each for each in judged.judgements if id(each) in worst]


def _overall(overall: Sequence[Overall]) -> Iterator[str]:
    by_side = sorted(overall, key=_sides)
    rows = [
        (
            clean(each.metric),
            change_text(each.ratio),
            interval_text(each.low, each.high),
            f"{each.cases} {'case' if each.cases == 1 else 'cases'}",
        )
        for each in by_side
    ]
    lines = aligned(rows, num_text_columns=1)
    for side, members in groupby(zip(by_side, lines, strict=True), lambda each: _sides(each[0])):
        yield from wrapped(side, _INDENT)
        yield from (_DETAIL_INDENT + line for _, line in members)


def _verdicts(judgements: Sequence[Judgement]) -> Iterator[str]:
    heading, *lines = aligned([_HEADINGS, *map(_figures, judgements)], num_text_columns=2)
    tested_heading, *tested = aligned([_TESTED_HEADINGS, *map(_tested, judgements)], 0)
    yield f"{_INDENT}{heading} {tested_heading}"
    members = zip(judgements, lines, tested, strict=True)
    for title, group in groupby(members, lambda each: _group_title(each[0])):
        yield ""
        yield from wrapped(title, _DETAIL_INDENT, first="")
        for judgement, line, of_test in group:
            yield from _row(judgement, _INDENT + line, of_test)


def _row(judgement: Judgement, line: str, tested: str) -> Iterator[str]:
    """The figures and the reason, which is on the same line if there was no test and it fits."""
    detail = clean(judgement.detail or cause_text(judgement))
    if judgement.evidence is None and cell_len(f"{line} {detail}") <= WIDTH:
        yield f"{line} {detail}"
        return
    yield f"{line} {tested}"
    if needs_words(judgement):
        yield from wrapped(detail, _DETAIL_INDENT)


def _group_title(judgement: Judgement) -> str:
    advisory = " (advisory)" if judgement.advisory else ""
    return f"{judgement.key} · {_sides(judgement)}{advisory}"


def _sides(each: Judgement | Overall) -> str:
    return side_text(each.base, each.other)


def _figures(judgement: Judgement) -> tuple[str, ...]:
    return (
        judgement.verdict.value,
        clean(judgement.metric),
        value_text(judgement.base_value, judgement.unit),
        value_text(judgement.other_value, judgement.unit),
        change_text(judgement.ratio),
    )


def _tested(judgement: Judgement) -> tuple[str, str]:
    return interval_text(judgement.low, judgement.high), margin_text(judgement)
