"""Reports as text: for a terminal in its width and with colours, else as wide as they need to be.

Text is folded between words. In a table the widest columns are folded first, and a word is only
broken where no column has a blank left to fold at; no cell is ever lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from bt_bench.report.document import (
    ABSENT,
    Block,
    Bullets,
    Cell,
    Document,
    Heading,
    Table,
    Tone,
    inert,
    numbered_notes,
    one_line,
)

PLAIN_WIDTH = 120
"""Columns of text that no terminal shows, unless a table needs more."""

_GAP = 2  # blanks between columns; one where it is narrow
_INDENT = "  "  # of rows under headings
_NOTE_INDENT = "    "
_STYLES = {
    None: "",
    Tone.BAD: "red",
    Tone.GOOD: "green",
    Tone.DOUBTFUL: "yellow",
    Tone.OPEN: "dim",
}


def print_document(document: Document, console: Console | None = None) -> None:
    """Prints any report, to stdout unless to another console."""
    console = console or Console()
    width = console.width if console.is_terminal else _width_needed(document)
    for line in _document_lines(document, width):
        safe = inert(line.plain)
        # A `str` would be searched for markup.
        console.print(line if safe == line.plain else Text(safe), soft_wrap=True)


def render_plain(document: Document) -> str:
    """Any report as the text that a pipe gets: no colour, no line cut."""
    stream = StringIO()
    print_document(document, Console(file=stream, force_terminal=False, color_system=None))
    return stream.getvalue()


def _width_needed(document: Document) -> int:
    """The width in which no cell is folded."""
    blocks = [*document.lead, *(block for section in document.sections for block in section.blocks)]
    tables = [block for block in blocks if isinstance(block, Table)]
    return max([PLAIN_WIDTH, *(_Layout(table, PLAIN_WIDTH).width_needed for table in tables)])


def _document_lines(document: Document, width: int) -> Iterator[Text]:
    yield from _paragraph(document.title, width, style="bold")
    yield from _block_lines(document.lead, width)
    for section in document.sections:
        yield Text()
        yield from _paragraph(section.title, width, style="bold")
        yield from _block_lines(section.blocks, width)


def _block_lines(blocks: Sequence[Block], width: int) -> Iterator[Text]:
    for index, block in enumerate(blocks):
        if isinstance(block, Table):
            yield from _Layout(block, width).lines()
        elif isinstance(block, Bullets):
            for item in block.items:
                yield from _paragraph(item, width, first="- ", indent="  ")
        else:
            if index and isinstance(blocks[index - 1], Table):
                yield Text()
            yield from _paragraph(block, width)


def _paragraph(
    text: str, width: int, first: str = "", indent: str = "", style: str = ""
) -> Iterator[Text]:
    yield from (Text(line, style) for line in folded(text, width, first, indent))


class _Layout:
    """A table in a width: the texts of its cells, and how wide its columns are."""

    def __init__(self, table: Table, width: int) -> None:
        self._table = table
        self._width = width
        self._titles = list(map(one_line, table.columns))
        self._texts, self._notes = numbered_notes(table, numbered=not table.notes_at_rows)
        rows = zip(table.rows, self._texts, strict=True)
        cells = [texts for row, texts in rows if not isinstance(row, Heading)]
        self._indent = _INDENT if len(cells) < len(table.rows) else ""
        columns = list(zip(self._titles, *cells, strict=True))
        gaps = len(columns) - 1
        natural = sum(max(map(cell_len, column)) for column in columns)
        self.width_needed = len(self._indent) + natural + _GAP * gaps
        self._gap = _GAP if self.width_needed <= width else 1
        self._widths = _column_widths(columns, width - len(self._indent) - self._gap * gaps)

    def lines(self) -> Iterator[Text]:
        """The titles, a rule, the rows, and the numbered notes."""
        yield from self._row_lines(self._titles, ["bold"] * len(self._titles))
        rule = sum(self._widths) + self._gap * (len(self._widths) - 1)
        yield Text(f"{self._indent}{'─' * rule}")
        for row, texts in zip(self._table.rows, self._texts, strict=True):
            if isinstance(row, Heading):
                yield Text()
                yield from _paragraph(row.text, self._width, indent=_INDENT + _NOTE_INDENT)
            else:
                yield from self._noted(row, texts)
        for note in self._notes:
            yield from _paragraph(note, self._width)

    def _noted(self, row: Sequence[Cell], texts: Sequence[str]) -> Iterator[Text]:
        """A row with its notes: in place of its last cells if those are absent, else below it."""
        styles = [_STYLES[cell.tone] for cell in row]
        notes = "; ".join(dict.fromkeys(one_line(cell.note) for cell in row if cell.note))
        if not notes or not self._table.notes_at_rows:
            yield from self._row_lines(texts, styles)
            return
        kept = max((i + 1 for i, text in enumerate(texts) if text != ABSENT), default=0)
        taken = len(self._indent) + sum(self._widths[:kept]) + self._gap * kept
        if kept < len(texts) and taken + cell_len(notes) <= self._width:
            yield from self._row_lines(texts[:kept], styles, beside=notes)
            return
        yield from self._row_lines(texts, styles)
        indent = self._indent + _NOTE_INDENT
        yield from _paragraph(notes, self._width, first=indent, indent=indent)

    def _row_lines(
        self, texts: Sequence[str], styles: Sequence[str], beside: str = ""
    ) -> Iterator[Text]:
        cells = [
            [part for line in folded(text, width) for part in chop_cells(line, max(1, width))]
            for text, width in zip(texts, self._widths, strict=False)
        ]
        for number in range(max([1, *map(len, cells)])):
            line = Text(self._indent)
            for index, (parts, width) in enumerate(zip(cells, self._widths, strict=False)):
                part = parts[number] if number < len(parts) else ""
                blanks = " " * (width - cell_len(part))
                is_text = index < self._table.num_text_columns
                line.append("" if is_text else blanks)
                line.append(part, styles[index])
                line.append((blanks if is_text else "") + " " * self._gap)
            line.append("" if number else beside)
            line.rstrip()
            yield line


def _column_widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Widths that fit into the room; the widest columns give way first, and words hold longest."""
    widths = [max(map(cell_len, column)) for column in columns]
    words = [
        max(cell_len(word) for text in column for word in [*text.split(), ""]) for column in columns
    ]
    # A character may be two cells wide.
    for least in (words, [2] * len(widths)):
        while sum(widths) > room:
            wide = [index for index, width in enumerate(widths) if width > least[index]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def folded(text: str, width: int, first: str = "", indent: str = "") -> list[str]:
    """The text on lines of at most `width` cells; a word that is wider is left whole.

    Args:
        text: any text; line breaks and control characters become blanks.
        width: of the lines, with what they begin with.
        first: what the first line begins with.
        indent: what the others begin with.
    """
    lines = []
    line, is_bare = first, True
    for word in one_line(text).split():
        if not is_bare and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line, is_bare = indent, True
        line += word if is_bare else f" {word}"
        is_bare = False
    return [*lines, line]
