"""Reports for the terminal, with rich: the same tables as in the Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from bt_bench.report.document import Block, Bullets, Document, Table, numbered_notes, one_line
from bt_bench.report.run.document import run_document
from bt_bench.results import VariantResult

PLAIN_WIDTH = 120
COLUMN_GAP = 2


def print_comparison(
    results: Sequence[VariantResult], console: Console, planned_cases: int | None = None
) -> None:
    """Prints the tables of a run; how to read them is in `comparison.md`."""
    print_document(run_document(results, planned_cases, whole=False), console)


def print_document(document: Document, console: Console) -> None:
    """Prints any report."""
    with _wide_enough(console, document):
        console.print(_text(document.title, "bold"))
        _print_blocks(document.lead, console)
        for section in document.sections:
            console.print()
            console.print(_text(section.title, "bold"))
            _print_blocks(section.blocks, console)


def render_plain(document: Document) -> str:
    """Any report as the text that a pipe gets: no colour, no line cut."""
    stream = StringIO()
    print_document(document, Console(file=stream, force_terminal=False, color_system=None))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


@contextmanager
def _wide_enough(console: Console, document: Document) -> Iterator[None]:
    """Makes the console as wide as the widest table needs, unless it is a terminal."""
    if console.is_terminal:
        yield
        return
    before = console.size
    blocks = [*document.lead, *(block for section in document.sections for block in section.blocks)]
    widths = [_natural_width(block) for block in blocks if isinstance(block, Table)]
    console.width = max([PLAIN_WIDTH, *widths])
    try:
        yield
    finally:
        console.size = before


def _natural_width(table: Table) -> int:
    """Width of a table without line breaks; rich's own measurement is as slow as printing."""
    rows, _ = numbered_notes(table)
    columns = zip(map(one_line, table.columns), *rows, strict=True)
    return sum(max(map(cell_len, column)) + COLUMN_GAP for column in columns)


def _print_blocks(blocks: Sequence[Block], console: Console) -> None:
    for index, block in enumerate(blocks):
        if isinstance(block, Table):
            _print_table(block, console)
        elif isinstance(block, Bullets):
            for item in block.items:
                console.print(_text(f"- {item}"))
        else:
            if index and isinstance(blocks[index - 1], Table):
                console.print()
            console.print(_text(block))


def _print_table(table: Table, console: Console) -> None:
    rich_table, notes = _rich_table(table)
    console.print(rich_table)
    for note in notes:
        console.print(_text(note))


def _rich_table(table: Table) -> tuple[RichTable, list[str]]:
    rows, notes = numbered_notes(table)
    # Without an edge and with one blank on the right, seven columns fit into 100.
    rich_table = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for index, title in enumerate(table.columns):
        rich_table.add_column(
            _text(title),
            justify="left" if index < table.num_text_columns else "right",
            overflow="fold",  # a narrow terminal breaks cells and never cuts them
        )
    for row in rows:
        rich_table.add_row(*map(_text, row))
    return rich_table, notes


def _text(text: str, style: str = "") -> Text:
    """The text as `Text`, since rich would interpret markup in a `str`."""
    return Text(one_line(text), style)
