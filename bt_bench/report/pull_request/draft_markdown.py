"""The description as GitHub's Markdown, in the sections of vLLM's template.

GitHub also reads plain text: `@name` notifies somebody, `fixes #1` closes an issue, an address
becomes a link. Texts from results do none of that.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator

from bt_bench.base import Block, Bullets
from bt_bench.report.evidence import Evidence
from bt_bench.report.formats.md_format import MOST_CHARACTERS
from bt_bench.report.formats.table_format import worst_caption, worst_table, worst_verdicts
from bt_bench.report.markdown import render_block
from bt_bench.report.pull_request.blanks import (
    BLANKS,
    CHECKLIST,
    CLAIMS,
    DETAILS,
    OVERVIEW,
    VALIDATION,
)
from bt_bench.report.pull_request.findings import (
    Findings,
    Row,
    findings_of,
    summary_table,
)

_END = "End of the machine-made part"
_MOST_ROWS = 40  # of each table
# An empty comment within each of these keeps GitHub from acting on it, and is not shown.
_ACTIVE = re.compile(r"@(?=\w)|#(?=\d)|(?<=GH)-(?=\d)|(?<=www)\.|:(?=//)", re.IGNORECASE)
_RULES = (
    "Speed-ups are of the base's time over the other's, from pairs of rounds where both were "
    "measured side by side. The worst case stands beside the median, with the confidence interval "
    "that its verdict rests on."
)


def render_draft(evidence: Evidence) -> str:
    """Return the description, at most as long as GitHub takes if texts are of usual length.

    Args:
        evidence: the runs and their comparison.
    """
    findings = findings_of(evidence)
    most = _MOST_ROWS
    while True:
        text = "\n\n".join(_chunks(findings, most)) + "\n"
        if len(text) <= MOST_CHARACTERS or most == 0:
            return text
        most //= 2


def _chunks(findings: Findings, most: int) -> Iterator[str]:
    yield from _section(OVERVIEW)
    yield from _section(CLAIMS)
    yield (
        f"**Machine-made, from here to “{_END}”:** {_inert(findings.source)}. Write around it, and "
        "not into it."
    )
    yield _inert(Bullets(findings.claims)) if findings.claims else _inert("Nothing was compared.")
    yield _inert("Limits:")
    yield _inert(Bullets(findings.limits))
    yield f"## {VALIDATION}"
    yield from _measured(findings, most)
    yield f"**{_END}.**"
    yield from _blanks(VALIDATION)
    yield from _section(DETAILS)
    yield from _section(CHECKLIST)


def _measured(findings: Findings, most: int) -> Iterator[str]:
    if findings.rows:
        yield _inert(_RULES)
        rows = sorted(findings.rows, key=_smallest_gain_first)
        kept = {id(row) for row in rows[:most]}
        yield _inert(summary_table([row for row in findings.rows if id(row) in kept]))
        if len(rows) > most:
            yield _inert(f"{len(rows) - most} more rows have larger speed-ups.")
    for title, table in findings.times:
        yield _inert(f"{title}, medians:")
        yield _inert(table)
    if findings.launches:
        yield _inert(Bullets(findings.launches))
    for title, texts in (
        ("Certainty:", findings.certainty),
        ("Hardware and versions:", findings.machine),
        ("Variants, as their authors describe them:", findings.sides),
    ):
        if texts:
            yield _inert(title)
            yield _inert(Bullets(texts))
    yield _inert("To reproduce:")
    yield _fenced(findings.commands)
    yield from _folded(findings, most)


def _folded(findings: Findings, most: int) -> Iterator[str]:
    """Yield the parts that a page hides until they are opened."""
    listed, rest = worst_verdicts(findings.decided, most)
    if listed:
        more = f" Not listed: {rest}." if rest else ""
        caption = f"{worst_caption(listed).capitalize()}.{more}"
        yield from _details("Verdicts that decide, the worst first", caption, worst_table(listed))
    if findings.method:
        yield from _details("How it was compared", Bullets(findings.method))
    if findings.digests:
        texts = tuple(f"{name}: {digest}" for name, digest in findings.digests)
        yield from _details("SHA-256 of the sources", Bullets(texts))


def _details(title: str, *blocks: Block) -> Iterator[str]:
    yield f"<details>\n<summary>{_inert(title)}</summary>"
    yield from map(_inert, blocks)
    yield "</details>"


def _section(title: str) -> Iterator[str]:
    yield f"## {title}"
    yield from _blanks(title)


def _blanks(section: str) -> Iterator[str]:
    for number, blank in enumerate(BLANKS, start=1):
        if blank.section == section:
            yield f"> **TO BE WRITTEN BY A HUMAN ({number} of {len(BLANKS)}).** {blank.ask}"


def _inert(block: Block) -> str:
    """Return a block as Markdown that notifies nobody, closes no issue and links nowhere."""
    # One line for a paragraph: in a description, GitHub shows each line break.
    text = render_block(block, aligned=False, width=sys.maxsize)
    return _ACTIVE.sub(r"\g<0><!-- -->", text)


def _fenced(lines: tuple[str, ...]) -> str:
    """Return lines as code, in a fence that none of them can close."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}bash", *lines, fence])


def _smallest_gain_first(row: Row) -> float:
    return -math.inf if row.worst is None else -(row.worst.ratio or 0.0)
