"""Strips in a terminal: an estimate and its interval on the axis of a table, in cells of text.

`├──●──┤   ┆` has the interval between its ends, the estimate at its dot, and no difference at the
mark. `○` is the estimate of an undecided one, `┼` the mark within an interval; `<` and `>` are ends
beyond the axis. For each character that an encoding may lack, `bt_bench.cli.encoding` has one in
ASCII, so that strips there have the same width.
"""

from __future__ import annotations

from collections.abc import Sequence

from bt_bench.base import Strip, Tick, Tone

LEAST_TERMINAL = 100
"""Width of a terminal, in columns, below which no table has strips."""

LEAST_CELLS, MOST_CELLS = 12, 40
"""Widths of a strip, in cells."""


def strip_cells(columns: int, spare: int, gap: int) -> int:
    """Return the width of each strip of a table in cells; 0 if they do not fit.

    Args:
        columns: number of columns with strips.
        spare: cells that the table leaves free.
        gap: cells between columns.
    """
    cells = min(MOST_CELLS, spare // columns - gap) if columns else 0
    return cells if cells >= LEAST_CELLS else 0


def strip_text(strip: Strip, ticks: Sequence[Tick], cells: int) -> str:
    """Draw a strip, exactly as wide as asked for.

    Args:
        strip: the interval.
        ticks: of its axis; strong ones are marks.
        cells: width, at least 1.
    """
    place = strip.interval
    marks = [tick.at for tick in ticks if tick.strong]
    low, point, high = (
        _beside(marks, each, cells) for each in (place.low, place.point, place.high)
    )
    drawn = [" "] * cells
    drawn[low : high + 1] = "─" * (high + 1 - low)
    for mark in marks:
        at = _cell(mark, cells)
        drawn[at] = "┼" if low < at < high else "┆"
    before, after = place.beyond
    drawn[low] = "<" if before else "├"
    drawn[high] = ">" if after else "┤"
    drawn[point] = "○" if strip.tone is Tone.OPEN else "●"
    return "".join(drawn)


def tick_text(ticks: Sequence[Tick], cells: int) -> str:
    """Return a line with the texts of ticks at their places, as far as there is room.

    A text begins in the cell of its tick, or further left where it would not fit. The mark has its
    text first, with the unit, then the ticks nearest to it.
    """
    drawn = " " * cells
    mark = next((tick.at for tick in ticks if tick.strong), 0.0)
    for tick in sorted(ticks, key=lambda each: (not each.strong, abs(each.at - mark))):
        text = tick.text if tick.strong else tick.text.partition(" ")[0]
        start = max(0, min(_cell(tick.at, cells), cells - len(text)))
        end = start + len(text)
        if end <= cells and not drawn[max(0, start - 1) : end + 1].strip():
            drawn = f"{drawn[:start]}{text}{drawn[end:]}"
    return drawn


def _beside(marks: Sequence[float], share: float, cells: int) -> int:
    """Return the cell of a share, which is a mark's own only if both are equal.

    Thus an interval touches a mark only if it includes it.
    """
    cell = _cell(share, cells)
    for mark in marks:
        at = _cell(mark, cells)
        if share > mark:
            cell = min(cells - 1, max(cell, at + 1))
        elif share < mark:
            cell = max(0, min(cell, at - 1))
    return cell


def _cell(share: float, cells: int) -> int:
    return min(cells - 1, int(share * cells))
