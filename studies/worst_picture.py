"""The picture of `worst.py`: all ratios, sorted, on logarithmic scales that cut long intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from worst_aims import Row, Worst
from worst_arms import DEVICE, HOST_STAGE, TO_SYNC
from worst_figures import Ratio
from worst_text import title_of

WIDTH, HEIGHT = 480, 300  # size of a panel
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 44, 34
COLUMNS = 2
COLOURS = ("#1f5fa8", "#c05a10")
# Ticks in each power of ten; the first row with few enough ticks is used.
TICKS = (
    (1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
    (1, 1.2, 1.5, 2, 3, 5, 7),
    (1, 2, 5),
    (1, 3),
    (1,),
)
MOST_TICKS = 9
BEYOND = 1.5  # factor beyond the greatest and the least value at which intervals are cut


@dataclass(frozen=True)
class Point:
    """A ratio and its interval, if it has one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    """The ratios to one other variant, sorted."""

    title: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Panel:
    """The ratios of one quantity.

    Args:
        title: title of the panel.
        lines: one or two lines.
        aims: aims, each with a name and a value.
    """

    title: str
    lines: Sequence[Line]
    aims: Sequence[tuple[str, float]] = ()


def picture(worst: Worst) -> str:
    """Return the whole picture as SVG; a quantity without any ratio has an empty panel."""
    panels = panels_of(worst)
    rows = math.ceil(len(panels) / COLUMNS)
    width, height = COLUMNS * WIDTH, rows * HEIGHT + 30
    title = f"{worst.variant}: ratios of {len(worst.cases)} cases"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="11" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(12, 20, title, size=14),
    ]
    for index, panel in enumerate(panels):
        x, y = index % COLUMNS * WIDTH, index // COLUMNS * HEIGHT + 30
        parts += [f'<g transform="translate({x} {y})">', *_panel(panel), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def panels_of(worst: Worst) -> list[Panel]:
    """Return the panels: ratios of three quantities, tails, and speeds relative to a plain copy."""
    host, device, speed, sync, tail = worst.rows
    opponent = title_of(worst.opponent)
    cases = worst.cases.values()

    def of_quantity(what: str, aims: Sequence[tuple[str, float]]) -> Panel:
        lines = [
            _line(opponent, [each.against[what] for each in cases]),
            _line("best other shipped variant", [each.beside[what] for each in cases]),
        ]
        title = f"{what}: times as long as {worst.variant}"
        return Panel(title, lines, aims)

    tails = sorted(tail.values.values(), reverse=True)
    speeds = sorted(each.copy_speed for each in cases if each.copy_speed is not None)
    return [
        of_quantity(HOST_STAGE, _aims(host, opponent)),
        of_quantity(DEVICE, _aims(device, opponent)),
        of_quantity(TO_SYNC, _aims(sync, "best other")),
        Panel(
            f"{HOST_STAGE}, p99 over median: over {opponent}'s (less is better)",
            [Line(opponent, [Point(value) for value in tails])],
            _aims(tail, opponent),
        ),
        Panel(
            "GPU: speed by that of a plain copy of the bytes, all cases",
            [Line("plain copy", [Point(value) for value in speeds])],
            _aims(speed, "where bound by it"),
        ),
    ]


def _line(title: str, ratios: Sequence[Ratio]) -> Line:
    known = [Point(each.value, each.low, each.high) for each in ratios if each.value is not None]
    return Line(title, sorted(known, key=lambda point: point.value))


def _aims(row: Row, of: str) -> list[tuple[str, float]]:
    named = (("worst", row.worst_aim), ("median", row.median_aim))
    return [(f"aim, {name}, {of}", aim) for name, aim in named if aim is not None]


def _panel(panel: Panel) -> list[str]:
    parts = [_text(LEFT, 14, panel.title, size=12)]
    # The scale ignores intervals: a very wide one would squeeze all ratios.
    values = [point.value for line in panel.lines for point in line.points]
    if not values:
        return [*parts, _text(LEFT, HEIGHT / 2, "nothing was compared", colour="#777777")]
    values += [1.0, *(aim for _, aim in panel.aims)]
    low, high = min(values) / BEYOND, max(values) * BEYOND
    for tick in _ticks(low, high):
        y = _y(tick, low, high)
        colour = "#888888" if tick == 1 else "#e4e4e4"
        parts.append(_rule(y, colour))
        parts.append(_text(LEFT - 5, y + 4, f"{tick:g}", anchor="end", colour="#444444"))
    for name, aim in panel.aims:
        y = _y(aim, low, high)
        parts.append(_rule(y, "#2a8a3a", "5 3"))
        parts.append(_text(WIDTH - RIGHT, y - 3, name, anchor="end", colour="#2a8a3a", size=9))
    for index, (line, colour) in enumerate(zip(panel.lines, COLOURS, strict=False)):
        parts += _drawn(line, colour, low, high)
        label = f"{line.title} ({len(line.points)} cases)"
        parts.append(_text(LEFT + 200 * index, 32, label, colour=colour))
    bottom = HEIGHT - BOTTOM + 16
    parts.append(_text(LEFT, bottom, "worst case", colour="#444444"))
    parts.append(_text(WIDTH - RIGHT, bottom, "best case", anchor="end", colour="#444444"))
    return parts


def _drawn(line: Line, colour: str, low: float, high: float) -> list[str]:
    """Draw the points as dots of one path, and their intervals as strokes of another."""
    span = WIDTH - LEFT - RIGHT
    dots, strokes = [], []
    for index, point in enumerate(line.points):
        x = LEFT + span * (index + 0.5) / len(line.points)
        dots.append(f"M{x:.1f} {_y(point.value, low, high):.1f}h0")
        if point.low is not None and point.high is not None:
            ends = [_y(min(max(each, low), high), low, high) for each in (point.low, point.high)]
            strokes.append(f"M{x:.1f} {ends[0]:.1f}V{ends[1]:.1f}")
    drawn = [f'<path d="{"".join(dots)}" stroke="{colour}" stroke-width="3" {_ROUND}/>']
    if strokes:
        path = f'<path d="{"".join(strokes)}" stroke="{colour}" stroke-opacity="0.3"/>'
        drawn.insert(0, path)
    return drawn


_ROUND = 'stroke-linecap="round" fill="none"'


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers between the ends, fewer per power of ten if there would be many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in TICKS:
        found = [s * 10.0**p for p in range(first, last + 1) for s in steps]
        ticks = [round(each, 9) for each in found if low <= each <= high]
        if len(ticks) <= MOST_TICKS:
            return ticks
    return ticks


def _y(value: float, low: float, high: float) -> float:
    share = math.log(value / low) / math.log(high / low)
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _rule(y: float, colour: str, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{colour}"{dashed}/>'


def _text(
    x: float, y: float, text: str, *, size: int = 11, anchor: str = "start", colour: str = "#111111"
) -> str:
    return (
        f'<text x="{x:g}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{colour}">{escape(text)}</text>'
    )
