"""Plain text for terminals of 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from rich.cells import cell_len

from bt_bench.report.formats.texts import clean

WIDTH = 80

_COMMANDS = re.compile(r"^(\s*):(?=:)|##(?=\[)", re.MULTILINE)


def wrapped(text: str, indent: str = "", first: str | None = None) -> list[str]:
    """The text on lines of at most `WIDTH`; words that are longer are left whole.

    Args:
        text: any text; line breaks and control characters become blanks.
        indent: what each line begins with.
        first: what the first line begins with; default: `indent`.
    """
    return textwrap.wrap(
        clean(text),
        WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def aligned(rows: Sequence[Sequence[str]], num_text_columns: int) -> list[str]:
    """Rows with their columns aligned, texts left and numbers right, one blank between."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blanks = " " * (width - cell_len(cell))
            cells.append(cell + blanks if index < num_text_columns else blanks + cell)
        lines.append(" ".join(cells).rstrip())
    return lines


def inert(text: str) -> str:
    """The text, changed so that GitHub's runner finds no command in it.

    The runner takes log lines that begin with `::NAME::`, or contain `##[NAME]`, for commands. A
    name from a config must not become one.
    """
    return _COMMANDS.sub(_broken, text)


def _broken(match: re.Match[str]) -> str:
    return f"{match[0]} "
