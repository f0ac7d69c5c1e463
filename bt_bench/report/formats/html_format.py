"""A comparison as an HTML fragment, to be embedded in a page.

It has neither scripts nor styles, and text from a config is never markup. It is readable as it is;
the classes are for the styles of the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from bt_bench.analysis import Judged
from bt_bench.base import Block, Bullets, Table, numbered_notes
from bt_bench.report.formats.judged_document import judged_document
from bt_bench.report.formats.texts import clean


def render_html_fragment(judged: Judged) -> str:
    """Return a `<section>` in UTF-8, with headings from the second level on."""
    document = judged_document(judged)
    lines = ['<section class="bt-bench">', f"<h2>{_text(document.title)}</h2>"]
    for block in document.lead:
        lines += _block(block)
    for section in document.sections:
        title = _text(section.title)
        folded = section.folded
        lines.append(f"<details><summary>{title}</summary>" if folded else f"<h3>{title}</h3>")
        for block in section.blocks:
            lines += _block(block)
        if folded:
            lines.append("</details>")
    lines.append("</section>")
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    return escape(clean(text), quote=True)


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, Bullets):
        yield "<ul>"
        yield from (f"<li>{_text(item)}</li>" for item in block.items)
        yield "</ul>"
    else:
        yield f"<p>{_text(block)}</p>"


def _table(table: Table) -> Iterator[str]:
    rows, notes = numbered_notes(table)
    # As an attribute: tables have a border even without styles.
    yield '<table border="1">'
    heading = "".join(f'<th scope="col">{_text(title)}</th>' for title in table.columns)
    yield f"<thead><tr>{heading}</tr></thead>"
    yield "<tbody>"
    yield from (_row(row, table.num_text_columns) for row in rows)
    yield "</tbody>"
    yield "</table>"
    yield from (f"<p>{_text(note)}</p>" for note in notes)


def _row(row: Sequence[str], num_text_columns: int) -> str:
    cells = [
        f"<td>{_text(cell)}</td>"
        if index < num_text_columns
        else f'<td class="number">{_text(cell)}</td>'
        for index, cell in enumerate(row)
    ]
    return f"<tr>{''.join(cells)}</tr>"
