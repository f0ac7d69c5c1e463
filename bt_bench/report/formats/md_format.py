"""A comparison as Markdown."""

from __future__ import annotations

import re

from bt_bench.analysis import Judged
from bt_bench.report.formats.judged_document import judged_document
from bt_bench.report.markdown import render_document


def render_md(judged: Judged, max_listed: int | None = None) -> str:
    """The text of a `.md` file, which is also readable as plain text.

    Args:
        judged: the comparison.
        max_listed: how many judgements are listed, from the first on; all if `None`.
    """
    text = render_document(judged_document(judged, max_listed))
    # GitHub's runner takes a line of a log that begins with `::` for a command, and such a word
    # may begin a wrapped line. Markdown shows an escaped colon as a colon.
    return re.sub(r"^(\s*)::", r"\1\\::", text, flags=re.MULTILINE)
