"""The structure of a report, independent of its format.

All texts are plain. Each output format escapes them, and no name from a config can become markup.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, TypeVar

ABSENT = "–"

_COMMANDS = re.compile(r"^(\s*):(?=:)|##(?=\[)", re.MULTILINE)
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Tone(Enum):
    """The meaning of a cell for the reader; a terminal shows it as a colour."""

    BAD = auto()
    GOOD = auto()
    DOUBTFUL = auto()
    OPEN = auto()


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval on an axis, as shares of the axis from its left end.

    Args:
        low: left end, 0 to 1.
        point: the estimate.
        high: right end.
        beyond: whether the interval goes on beyond the left and the right end of the axis.
    """

    low: float
    point: float
    high: float
    beyond: tuple[bool, bool] = field(default=(False, False), kw_only=True)


@dataclass(frozen=True)
class Tick:
    """A tick of an axis: its place, 0 to 1, and its text."""

    at: float
    text: str
    strong: bool = False


@dataclass(frozen=True)
class Strip:
    """An interval that a wide terminal draws beside a cell; with the tone `OPEN`, as undecided."""

    interval: Interval
    tone: Tone | None = None


@dataclass(frozen=True)
class Axis:
    """The axis of a table's strips: its ticks, and a sentence on the strips if they need one."""

    ticks: tuple[Tick, ...]
    legend: str = ""


@dataclass(frozen=True)
class Cell:
    """A value as printed; `note` explains an absent or odd value, `strip` is drawn beside it."""

    text: str
    note: str | None = None
    tone: Tone | None = None
    strip: Strip | None = None


@dataclass(frozen=True)
class Heading:
    """A line of its own in a table, above the rows that it introduces."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows under the titles of their columns.

    Args:
        columns: the titles.
        rows: the cells, one for each column; a `Heading` takes the whole line.
        num_text_columns: number of left-aligned columns; the others are right-aligned.
        notes_at_rows: on a terminal, print notes at their rows instead of numbered below the table.
        axis: of the strips of all cells; `None` if no cell has one.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...] | Heading, ...]
    num_text_columns: int
    notes_at_rows: bool = False
    axis: Axis | None = None


@dataclass(frozen=True)
class Bullets:
    """A list of texts."""

    items: tuple[str, ...]


Block = str | Bullets | Table  # a `str` is a paragraph


_AnyBlock = TypeVar("_AnyBlock", covariant=True)


@dataclass(frozen=True)
class SectionOf(Generic[_AnyBlock]):
    """Blocks of some kinds under a heading; a page hides `folded` ones until they are opened."""

    title: str
    blocks: tuple[_AnyBlock, ...]
    folded: bool = False


Section = SectionOf[Block]


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    lead: tuple[Block, ...]
    sections: tuple[Section, ...]


def one_line(text: str) -> str:
    """Return the text on one line, without control characters that could forge rows or colours."""
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(text.split())


def inert(text: str) -> str:
    """Return the text with the commands of GitHub's runner disarmed.

    The runner reads log lines that begin with `::NAME::`, or contain `##[NAME]`, as commands. A
    name from a config must not become one.
    """
    return _COMMANDS.sub(lambda match: f"{match[0]} ", text)


def numbered_notes(table: Table, numbered: bool = True) -> tuple[list[list[str]], list[str]]:
    """Return the cells' texts with the numbers of their notes, and the notes in order: `¹ why`.

    A heading fills the first column of an otherwise empty row.

    Args:
        table: the table.
        numbered: return notes; if false, leave out the notes and their numbers.
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
