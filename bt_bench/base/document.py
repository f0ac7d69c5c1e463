"""The structure of a report, independent of its format.

All texts are plain: a format escapes them, so that no name from a config can become markup.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

ABSENT = "–"

_COMMANDS = re.compile(r"^(\s*):(?=:)|##(?=\[)", re.MULTILINE)
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Tone(Enum):
    """What a cell means for the reader, which is a colour on a terminal."""

    BAD = auto()
    GOOD = auto()
    DOUBTFUL = auto()
    OPEN = auto()


@dataclass(frozen=True)
class Cell:
    """A value as it is printed; `note` says why it is absent or odd."""

    text: str
    note: str | None = None
    tone: Tone | None = None


@dataclass(frozen=True)
class Heading:
    """A line of its own in a table, above the rows that it is about."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows under the titles of their columns.

    Args:
        columns: the titles.
        rows: the cells, one for each column; a `Heading` has the whole line.
        num_text_columns: how many columns are left-aligned; the others are right-aligned.
        notes_at_rows: on a terminal, notes stand at their rows, not numbered below the table.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...] | Heading, ...]
    num_text_columns: int
    notes_at_rows: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list of texts."""

    items: tuple[str, ...]


Block = str | Bullets | Table  # a `str` is a paragraph


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; `folded` where a page shows them only when asked."""

    title: str
    blocks: tuple[Block, ...]
    folded: bool = False


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    lead: tuple[Block, ...]
    sections: tuple[Section, ...]


def one_line(text: str) -> str:
    """The text without line breaks and control characters, which could forge rows or colours."""
    visible = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(visible.split())


def inert(text: str) -> str:
    """The text, changed so that GitHub's runner finds no command in it.

    The runner takes log lines that begin with `::NAME::`, or contain `##[NAME]`, for commands. A
    name from a config must not become one.
    """
    return _COMMANDS.sub(lambda match: f"{match[0]} ", text)


def numbered_notes(table: Table, numbered: bool = True) -> tuple[list[list[str]], list[str]]:
    """Texts of the cells with the numbers of their notes, and the notes in order: `¹ why`.

    A heading is in the first column of a row that is empty otherwise.

    Args:
        table: the table.
        numbered: whether there are notes; else neither they nor their numbers are given.
    """
    numbers: dict[str, str] = {}
    rows = [
        [one_line(row.text), *[""] * (len(table.columns) - 1)]
        if isinstance(row, Heading)
        else [
            one_line(cell.text) + _number_of(cell.note if numbered else None, numbers)
            for cell in row
        ]
        for row in table.rows
    ]
    return rows, [f"{number} {one_line(note)}" for note, number in numbers.items()]


def _number_of(note: str | None, numbers: dict[str, str]) -> str:
    if note is None:
        return ""
    return numbers.setdefault(note, str(len(numbers) + 1).translate(_SUPERSCRIPTS))
