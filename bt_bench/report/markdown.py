"""Reports as Markdown that is also readable as plain text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from rich.cells import cell_len

from bt_bench.base import Block, Bullets, Document, Table, numbered_notes, one_line

LINE_WIDTH = 100

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MARKUP = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
_LINE_START = re.compile(r"^(?:[-+#](?=[#\s]|$)|[-=](?=[-=]*$)|\d+(?=[.)](?:\s|$)))")


def render_document(document: Document, *, aligned: bool = True) -> str:
    """Return any report as Markdown.

    Args:
        document: the report.
        aligned: pad the columns of tables, for reading them as plain text.
    """
    blocks = [f"# {escape(document.title)}"]
    blocks += [render_block(block, aligned=aligned) for block in document.lead]
    for section in document.sections:
        title = escape(section.title)
        if section.folded:  # blank lines around it, or GitHub reads no Markdown inside
            blocks.append(f"<details>\n<summary>{title}</summary>")
        else:
            blocks.append(f"## {title}")
        blocks += [render_block(block, aligned=aligned) for block in section.blocks]
        if section.folded:
            blocks.append("</details>")
    return "\n\n".join(blocks) + "\n"


def escape(text: str) -> str:
    """Return the text on one line, escaped: Markdown and HTML interpret nothing in it."""
    escaped = _MARKUP.sub(r"\\\g<0>", one_line(text))
    return re.sub("[&<>]", lambda match: _ENTITIES[match[0]], escaped)


def render_block(block: Block, *, aligned: bool = True, width: int = LINE_WIDTH) -> str:
    """Return a paragraph, a list or a table as Markdown.

    Args:
        block: the block.
        aligned: pad the columns of a table, for reading it as plain text.
        width: the longest line of a paragraph or an item; tables have none.
    """
    if isinstance(block, Table):
        return "\n".join(_render_table(block, aligned, width))
    if isinstance(block, Bullets):
        return "\n".join("- " + _wrap(item, width, indent="  ") for item in block.items)
    return _wrap(block, width)


def _wrap(text: str, width: int, indent: str = "") -> str:
    lines = textwrap.wrap(
        escape(text),
        width - len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
    # A word that lands at the start of a line must not begin a list or a heading there.
    safe = (_LINE_START.sub(_escape_start, line) for line in lines)
    return f"\n{indent}".join(safe)


def _escape_start(match: re.Match[str]) -> str:
    return match[0] + "\\" if match[0].isdigit() else "\\" + match[0]


def _render_table(table: Table, aligned: bool, width: int) -> Iterator[str]:
    texts, notes = numbered_notes(table)
    rows = [[escape(text) for text in row] for row in (table.columns, *texts)]
    measured = rows if aligned else [[""] * len(rows[0])]
    widths = [max(3, *map(cell_len, column)) for column in zip(*measured, strict=True)]
    left = [index < table.num_text_columns for index in range(len(widths))]
    rule = [
        "-" * (width - 1) + ("-" if is_left else ":")
        for width, is_left in zip(widths, left, strict=True)
    ]
    padded = [list(map(_pad, row, widths, left)) for row in rows]
    for cells in (padded[0], rule, *padded[1:]):
        yield f"| {' | '.join(cells)} |"
    if notes:
        yield ""
    # As a list, because a paragraph would join the lines.
    yield from (f"- {_wrap(note, width, indent='  ')}" for note in notes)


def _pad(text: str, width: int, left: bool) -> str:
    blanks = " " * max(0, width - cell_len(text))
    return text + blanks if left else blanks + text
