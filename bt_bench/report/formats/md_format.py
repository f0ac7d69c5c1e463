"""A comparison as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from bt_bench.analysis import Judged
from bt_bench.report.formats.arrange import worst_first
from bt_bench.report.formats.judged_document import judged_document
from bt_bench.report.markdown import render_document

MOST_CHARACTERS = 65_536
"""GitHub's limit for a comment on a pull request, and for its description."""

_SMALLEST_ROW = 40


def render_md(judged: Judged) -> str:
    """Return the text of a `.md` file, which is also readable as plain text.

    A text that is too long for GitHub is cut: the verdicts that decide are listed before the
    others, the worst first.
    """
    text = render_safe(judged)
    if len(text) <= MOST_CHARACTERS:
        return text
    return cut_md(judged, MOST_CHARACTERS, len)[:MOST_CHARACTERS]


def cut_md(judged: Judged, limit: int, size_of: Callable[[str], int]) -> str:
    """Return as much of a comparison as a limit allows, the worst first; without means.

    Sentences, warnings and facts are never left out; if these are very long, the text exceeds the
    limit.

    Args:
        judged: the comparison.
        limit: the largest size.
        size_of: returns the size of a text.
    """
    ordered = worst_first(judged).judgements
    ordered = tuple(sorted(ordered, key=lambda each: not each.decides))
    arranged = replace(judged, judgements=ordered, overall=())
    count = min(len(ordered), limit // _SMALLEST_ROW)
    while True:
        text = render_safe(arranged, count, aligned=False)
        size = size_of(text)
        if size <= limit or count == 0:
            return text
        count = int(count * 0.95 * limit / size)


def render_safe(judged: Judged, max_listed: int | None = None, *, aligned: bool = True) -> str:
    """Return a comparison as Markdown without lines that GitHub's runner takes for commands.

    Args:
        judged: the comparison.
        max_listed: number of judgements listed, from the first on; all if `None`.
        aligned: see `render_document`.
    """
    text = render_document(judged_document(judged, max_listed), aligned=aligned)
    # GitHub's runner takes a line of a log that begins with `::` for a command, and such a word
    # may begin a wrapped line. Markdown shows an escaped colon as a colon.
    return re.sub(r"^(\s*)::", r"\1\\::", text, flags=re.MULTILINE)
