"""The structure of a report, independent of its format.

All texts are plain: a format escapes them, so that no name from a config can become markup.
"""

from __future__ import annotations

from dataclasses import dataclass

ABSENT = "–"

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Cell:
    """A value as it is printed; `note` says why it is absent or odd."""

    text: str
    note: str | None = None


@dataclass(frozen=True)
class Table:
    """Rows under headings. The first `num_text_columns` are left-aligned, the others right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    num_text_columns: int


@dataclass(frozen=True)
class Bullets:
    """A list of texts."""

    items: tuple[str, ...]


Block = str | Bullets | Table  # a `str` is a paragraph


@dataclass(frozen=True)
class Section:
    """Blocks under a heading."""

    title: str
    blocks: tuple[Block, ...]


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


def numbered_notes(table: Table) -> tuple[list[list[str]], list[str]]:
    """Texts of the cells with the numbers of their notes, and the notes in order: `¹ why`."""
    numbers: dict[str, str] = {}
    rows = [
        [one_line(cell.text) + _number_of(cell.note, numbers) for cell in row] for row in table.rows
    ]
    return rows, [f"{number} {one_line(note)}" for note, number in numbers.items()]


def _number_of(note: str | None, numbers: dict[str, str]) -> str:
    if note is None:
        return ""
    return numbers.setdefault(note, str(len(numbers) + 1).translate(_SUPERSCRIPTS))
