"""Reports as text: coloured and as wide as the terminal, else plain and as wide as needed.

Text is folded between words. In a table the widest columns are folded first. If that would break
names, the names in the first column get lines of their own. If that is not enough, names are folded
after `_`, `-` or `/`, and only then is a word broken anywhere. No cell is ever lost.

A wide terminal has room for strips beside the cells of a table, which show intervals on an axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import StringIO

from rich.cells import cell_len
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
from bt_bench.report.folding import broken, column_widths, folded, folds, widest
from bt_bench.report.strips import LEAST_TERMINAL, strip_cells, strip_text, tick_text

PLAIN_WIDTH = 120
"""Width of text outside of terminals, in columns, unless a table needs more."""

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
    drawn = console.is_terminal and console.width >= LEAST_TERMINAL
    width = console.width if console.is_terminal else _width_needed(document)
    for line in _document_lines(document, width, drawn):
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


def _document_lines(document: Document, width: int, drawn: bool) -> Iterator[Text]:
    yield from _paragraph(document.title, width, style="bold")
    yield from _block_lines(document.lead, width, drawn)
    for section in document.sections:
        yield Text()
        yield from _paragraph(section.title, width, style="bold")
        yield from _block_lines(section.blocks, width, drawn)


def _block_lines(blocks: Sequence[Block], width: int, drawn: bool) -> Iterator[Text]:
    for index, block in enumerate(blocks):
        if isinstance(block, Table):
            yield from _Layout(block, width, drawn).lines()
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

    If the width is too small for the names in the first column, they get lines of their own. If it
    leaves room beside all columns, strips are drawn.
    """

    def __init__(self, table: Table, width: int, drawn: bool = False) -> None:
        self._table = table
        self._width = width
        self._titles = list(map(one_line, table.columns))
        self._texts, self._notes = numbered_notes(table, numbered=not table.notes_at_rows)
        rows = zip(table.rows, self._texts, strict=True)
        cells = [texts for row, texts in rows if not isinstance(row, Heading)]
        self._name_indent = _INDENT if len(cells) < len(table.rows) else ""
        columns = list(zip(self._titles, *cells, strict=True))
        natural = sum(map(widest, columns))
        self.width_needed = len(self._name_indent) + natural + _GAP * (len(columns) - 1)
        self._set_strips(width - self.width_needed if drawn else 0)
        self._names = 0  # how many columns have lines of their own
        if not self._lay_out(columns) and table.num_text_columns and len(columns) > 1:
            self._names = 1
            self._lay_out(columns[1:])

    def _set_strips(self, spare: int) -> None:
        """Choose the width of all strips, and the columns that they follow: none without room."""
        rows = (row for row in self._table.rows if not isinstance(row, Heading))
        found = {index for row in rows for index, cell in enumerate(row) if cell.strip}
        self._strip = strip_cells(len(found), spare, _GAP)
        self._followed = found if self._strip else set()
        axis = self._table.axis if self._followed else None
        self._ticks = axis.ticks if axis else ()
        if axis and axis.legend:
            self._notes = [axis.legend, *self._notes]

    def _lay_out(self, columns: Sequence[Sequence[str]]) -> bool:
        """Set the widths of the columns; return whether no name has to be folded."""
        self._indent = self._name_indent + _INDENT * self._names
        self._num_text = self._table.num_text_columns - self._names
        room, gaps = self._width - len(self._indent), len(columns) - 1
        stages = folds(columns, self._num_text)
        natural, by_title, by_blank, by_joint = (
            sum(widths) for widths in (map(widest, columns), *stages[:3])
        )
        # Narrower gaps are preferred to folded cells, but not to folded titles.
        choices = [(natural, _GAP), (by_title, _GAP), (by_title, 1)]
        choices += [(needed, gap) for needed in (by_blank, by_joint) for gap in (_GAP, 1)]
        enough = (gap for needed, gap in choices if needed + gap * gaps <= room)
        self._gap = next(enough, 1)
        self._widths = column_widths(columns, stages, room - self._gap * gaps)
        return by_blank + gaps <= room

    def lines(self) -> Iterator[Text]:
        """Yield the titles, a rule, the rows, and the numbered notes."""
        if self._names:
            yield from self._name_lines(self._titles[0], "bold")
        titles = self._titles[self._names :]
        ticks = Text(tick_text(self._ticks, self._strip))
        yield from self._row_lines(
            titles, ["bold"] * len(titles), dict.fromkeys(self._followed, ticks)
        )
        rule = self._taken(len(self._widths)) - self._gap - len(self._name_indent)
        yield Text(f"{self._name_indent}{'─' * rule}")
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

    def _taken(self, columns: int) -> int:
        """Return the width of the first columns, with the indent and a gap after each."""
        strips = sum(index < columns for index in self._followed)
        taken = len(self._indent) + sum(self._widths[:columns]) + self._gap * columns
        return taken + strips * (self._strip + self._gap)

    def _name_lines(self, name: str, style: str) -> Iterator[Text]:
        width = self._width - len(self._name_indent)
        for line in folded(name, width):
            for part in broken(line, max(1, width)):
                yield Text(self._name_indent).append(part, style)

    def _noted(self, row: Sequence[Cell], texts: Sequence[str]) -> Iterator[Text]:
        """Yield a row with its notes: in place of absent last cells if they fit, else below."""
        styles = [_STYLES[cell.tone] for cell in row[self._names :]]
        texts = texts[self._names :]
        notes = "; ".join(dict.fromkeys(one_line(cell.note) for cell in row if cell.note))
        strips = self._strips_of(row)
        if not notes or not self._table.notes_at_rows:
            yield from self._row_lines(texts, styles, strips)
            return
        kept = max((i + 1 for i, text in enumerate(texts) if text != ABSENT), default=0)
        if kept < len(texts) and self._taken(kept) + cell_len(notes) <= self._width:
            yield from self._row_lines(texts[:kept], styles, strips, beside=notes)
            return
        yield from self._row_lines(texts, styles, strips)
        indent = self._indent + _NOTE_INDENT
        yield from _paragraph(notes, self._width, first=indent, indent=indent)

    def _strips_of(self, row: Sequence[Cell]) -> dict[int, Text]:
        return {
            index: Text(strip_text(cell.strip, self._ticks, self._strip), _STYLES[cell.strip.tone])
            for index, cell in enumerate(row)
            if cell.strip and index in self._followed
        }

    def _row_lines(
        self,
        texts: Sequence[str],
        styles: Sequence[str],
        strips: Mapping[int, Text],
        beside: str = "",
    ) -> Iterator[Text]:
        cells = [
            [part for line in folded(text, width) for part in broken(line, max(1, width))]
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
                if index in self._followed:
                    line.append_text(strips.get(index, Text(" " * self._strip)))
                    line.append(" " * self._gap)
            line.append("" if number else beside)
            line.rstrip()
            yield line
