"""Texts folded into lines and columns, by the cells that characters take in a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, chop_cells

from bt_bench.base import one_line

_JOINT = re.compile(r"(?<=\w[_\-/])(?=\w)")
"""Places where a name can be folded; not after the sign of a number."""


def folds(columns: Sequence[Sequence[str]], num_text_columns: int) -> list[list[int]]:
    """Return the least widths of the columns at each stage of folding, from mild to harsh.

    First titles are folded; then cells of text at their blanks; then names at their joints; then
    numbers, such as intervals, at their blanks; then everything, anywhere.
    """
    by_title: list[int] = []
    by_blank: list[int] = []
    by_joint: list[int] = []
    by_number: list[int] = []
    for index, (title, *cells) in enumerate(columns):
        named = widest(parts_of(title))
        words = widest(word for cell in cells for word in cell.split())
        parts = widest(part for cell in cells for part in parts_of(cell))
        whole = widest(cells)
        is_text = index < num_text_columns
        by_title.append(max(named, whole))
        by_blank.append(max(named, words if is_text else whole))
        by_joint.append(max(named, parts if is_text else whole))
        by_number.append(max(named, parts if is_text else words))
    # A character may be two cells wide.
    return [by_title, by_blank, by_joint, by_number, [2] * len(columns)]


def widest(texts: Iterable[str]) -> int:
    """Return the width of the widest text in cells, 0 without any."""
    return max(map(cell_len, texts), default=0)


def parts_of(text: str) -> list[str]:
    """Split a text wherever it can be folded: `fused_`, `apply`."""
    return [part for word in text.split() for part in _JOINT.split(word)]


def column_widths(
    columns: Sequence[Sequence[str]], folds: Sequence[Sequence[int]], room: int
) -> list[int]:
    """Return widths that fit into the room; the widest columns shrink first.

    Args:
        columns: by column, its title and its cells.
        folds: the least widths by stage, see `folds`.
        room: cells for all columns, without gaps.
    """
    widths = [widest(column) for column in columns]
    for least in folds:
        while sum(widths) > room:
            wide = [index for index, width in enumerate(widths) if width > least[index]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def broken(line: str, width: int) -> list[str]:
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
