"""Reports as text: coloured and as wide as the terminal, else plain and as wide as needed.

Text is folded between words. In a table the widest columns are folded first. If that would break
names, the names in the first column get lines of their own. If that is not enough, names are folded
after `_`, `-` or `/`, and only then is a word broken anywhere. No cell is ever lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from bt_bench.base import (
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
"""Width of text outside of terminals, in columns, unless a table needs more."""

_JOINT = re.compile(r"(?<=\w[_\-/])(?=\w)")
"""Places where a name can be folded; not after the sign of a number."""

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
    """Print any report, to stdout by default."""
    console = console or Console()
    width = console.width if console.is_terminal else _width_needed(document)
    for line in _document_lines(document, width):
        safe = inert(line.plain)
        # A `str` would be searched for markup.
        console.print(line if safe == line.plain else Text(safe), soft_wrap=True)


def render_plain(document: Document) -> str:
    """Return any report as text for a pipe: no colour, no line cut."""
    stream = StringIO()
    print_document(document, Console(file=stream, force_terminal=False, color_system=None))
    return stream.getvalue()


def _width_needed(document: Document) -> int:
    """Return the width at which no cell is folded."""
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
    """A table laid out in a given width: the texts of its cells, and its column widths.

    If the width is too small for the names in the first column, they get lines of their own.
    """

    def __init__(self, table: Table, width: int) -> None:
        self._table = table
        self._width = width
        self._titles = list(map(one_line, table.columns))
        self._texts, self._notes = numbered_notes(table, numbered=not table.notes_at_rows)
        rows = zip(table.rows, self._texts, strict=True)
        cells = [texts for row, texts in rows if not isinstance(row, Heading)]
        self._name_indent = _INDENT if len(cells) < len(table.rows) else ""
        columns = list(zip(self._titles, *cells, strict=True))
        natural = sum(map(_widest, columns))
        self.width_needed = len(self._name_indent) + natural + _GAP * (len(columns) - 1)
        self._names = 0  # how many columns have lines of their own
        if not self._lay_out(columns) and table.num_text_columns and len(columns) > 1:
            self._names = 1
            self._lay_out(columns[1:])

    def _lay_out(self, columns: Sequence[Sequence[str]]) -> bool:
        """Set the widths of the columns; return whether no name has to be folded."""
        self._indent = self._name_indent + _INDENT * self._names
        self._num_text = self._table.num_text_columns - self._names
        room, gaps = self._width - len(self._indent), len(columns) - 1
        folds = _folds(columns, self._num_text)
        natural, by_title, by_blank, by_joint = (
            sum(widths) for widths in (map(_widest, columns), *folds[:3])
        )
        # Narrower gaps are preferred to folded cells, but not to folded titles.
        choices = [(natural, _GAP), (by_title, _GAP), (by_title, 1)]
        choices += [(needed, gap) for needed in (by_blank, by_joint) for gap in (_GAP, 1)]
        enough = (gap for needed, gap in choices if needed + gap * gaps <= room)
        self._gap = next(enough, 1)
        self._widths = _column_widths(columns, folds, room - self._gap * gaps)
        return by_blank + gaps <= room

    def lines(self) -> Iterator[Text]:
        """Yield the titles, a rule, the rows, and the numbered notes."""
        if self._names:
            yield from self._name_lines(self._titles[0], "bold")
        titles = self._titles[self._names :]
        yield from self._row_lines(titles, ["bold"] * len(titles))
        rule = sum(self._widths) + self._gap * (len(self._widths) - 1)
        yield Text(
            f"{self._name_indent}{'─' * (rule + len(self._indent) - len(self._name_indent))}"
        )
        name = None
        for row, texts in zip(self._table.rows, self._texts, strict=True):
            if isinstance(row, Heading):
                yield Text()
                yield from _paragraph(row.text, self._width, indent=_INDENT + _NOTE_INDENT)
                name = None
                continue
            if self._names and texts[0] != name:
                name = texts[0]
                yield from self._name_lines(name, _STYLES[row[0].tone])
            yield from self._noted(row, texts)
        for note in self._notes:
            yield from _paragraph(note, self._width)

    def _name_lines(self, name: str, style: str) -> Iterator[Text]:
        width = self._width - len(self._name_indent)
        for line in folded(name, width):
            for part in _broken(line, max(1, width)):
                yield Text(self._name_indent).append(part, style)

    def _noted(self, row: Sequence[Cell], texts: Sequence[str]) -> Iterator[Text]:
        """Yield a row with its notes: in place of absent last cells if they fit, else below."""
        styles = [_STYLES[cell.tone] for cell in row[self._names :]]
        texts = texts[self._names :]
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
            [part for line in folded(text, width) for part in _broken(line, max(1, width))]
            for text, width in zip(texts, self._widths, strict=False)
        ]
        for number in range(max([1, *map(len, cells)])):
            line = Text(self._indent)
            for index, (parts, width) in enumerate(zip(cells, self._widths, strict=False)):
                part = parts[number] if number < len(parts) else ""
                blanks = " " * (width - cell_len(part))
                is_text = index < self._num_text
                line.append("" if is_text else blanks)
                line.append(part, styles[index])
                line.append((blanks if is_text else "") + " " * self._gap)
            line.append("" if number else beside)
            line.rstrip()
            yield line


def _folds(columns: Sequence[Sequence[str]], num_text_columns: int) -> list[list[int]]:
    """Return the least widths of the columns at each stage of folding, from mild to harsh.

    First titles are folded; then cells of text at their blanks; then names at their joints; then
    numbers, such as intervals, at their blanks; then everything, anywhere.
    """
    by_title: list[int] = []
    by_blank: list[int] = []
    by_joint: list[int] = []
    by_number: list[int] = []
    for index, (title, *cells) in enumerate(columns):
        named = _widest(_parts(title))
        words = _widest(word for cell in cells for word in cell.split())
        parts = _widest(part for cell in cells for part in _parts(cell))
        whole = _widest(cells)
        is_text = index < num_text_columns
        by_title.append(max(named, whole))
        by_blank.append(max(named, words if is_text else whole))
        by_joint.append(max(named, parts if is_text else whole))
        by_number.append(max(named, parts if is_text else words))
    # A character may be two cells wide.
    return [by_title, by_blank, by_joint, by_number, [2] * len(columns)]


def _widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _parts(text: str) -> list[str]:
    """Split a text wherever it can be folded: `fused_`, `apply`."""
    return [part for word in text.split() for part in _JOINT.split(word)]


def _column_widths(
    columns: Sequence[Sequence[str]], folds: Sequence[Sequence[int]], room: int
) -> list[int]:
    """Return widths that fit into the room; the widest columns shrink first."""
    widths = [_widest(column) for column in columns]
    for least in folds:
        while sum(widths) > room:
            wide = [index for index, width in enumerate(widths) if width > least[index]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _broken(line: str, width: int) -> list[str]:
    """Return a line as it is if it fits, else broken into several, at its joints if possible."""
    if cell_len(line) <= width:
        return [line]
    lines = [""]
    for part in _JOINT.split(line):
        for piece in chop_cells(part, width):
            if lines[-1] and cell_len(lines[-1]) + cell_len(piece) > width:
                lines.append("")
            lines[-1] += piece
    return lines


def folded(text: str, width: int, first: str = "", indent: str = "") -> list[str]:
    """Fold a text into lines of at most `width` cells; a wider word stays whole.

    Args:
        text: any text; line breaks and control characters become blanks.
        width: width of the lines, prefixes included.
        first: prefix of the first line.
        indent: prefix of the other lines.
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
