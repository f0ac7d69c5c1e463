"""The calls of a step as a flame graph: the width of each frame is its time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from bt_bench.base import format_percent, one_line
from bt_bench.report.profile import svg
from bt_bench.report.profile.host_calls import place_of
from bt_bench.report.profile.svg import MARGIN, WIDTH
from bt_bench.results import HostFrame, HostProfile

LEAST_SHARE = 0.003
"""Least share of the picture's width; narrower frames are left out."""

_INNER = WIDTH - 2 * MARGIN
_HEAD = 58  # above the frames: title and legend
_ROW = 20
_FOOT = 30
_FONT = 11
_CHARACTER = 0.61 * _FONT  # the width of one in a monospaced font
_PADDING = 4
_FEWEST_CHARACTERS = 3  # of a cut text

_Fill = Literal["python", "c", "rest"]
_FILLS: dict[_Fill, str] = {"python": "#9ecae1", "c": "#fdd0a2", "rest": "#e3e3e3"}
_LEGEND: dict[_Fill, str] = {"python": "Python", "c": "C", "rest": "not explained by calls"}


def flame_graph(profile: HostProfile, title: str) -> str:
    """Return the calls of a step as a standalone SVG, with the step's call at the top.

    Below each frame are the functions that it calls, in the order of their first calls. A frame is
    as wide as the time of its function with all callees. Tooltips have full names, places, times
    and shares. If the calls explain less than the step takes without a handler, the rest is drawn
    beside them.

    Args:
        profile: profile of one step.
        title: title of the picture.
    """
    canvas = _Canvas(profile)
    x = float(MARGIN)
    for frame in profile.frames:
        x += canvas.draw(frame, x, 0)
    if (rest := profile.unexplained_us) > 0:
        canvas.draw_rest(rest, x)
    height = _HEAD + (canvas.deepest + 1) * _ROW + _FOOT
    return svg.picture(
        height,
        title,
        int((_INNER - 2 * _PADDING) / 8.5),
        [
            *_legend(profile),
            f'<g {svg.FAMILY} font-size="{_FONT}">',
            *canvas.parts,
            "</g>",
            svg.text(MARGIN, height - 12, _note(canvas), "#555555"),
        ],
    )


@dataclass
class _Canvas:
    """A canvas for frames, which counts those that are left out."""

    profile: HostProfile
    parts: list[str] = field(default_factory=list)
    deepest: int = 0
    left_out: int = 0
    left_out_us: float = 0.0

    def __post_init__(self) -> None:
        self._whole_us = self.profile.whole_us

    def draw(self, frame: HostFrame, x: float, depth: int) -> float:
        """Draw a frame with all that it calls; return its width."""
        total_us = _total(frame)
        width = self._width(total_us)
        if width < LEAST_SHARE * _INNER:
            self.left_out += _count(frame)
            self.left_out_us += total_us
            return width
        where = "" if frame.file is None else f", {place_of(frame.file, frame.line)}"
        calls = f"{frame.calls} call{'s' * (frame.calls != 1)}"
        self._rect(
            x,
            depth,
            width,
            frame.kind,
            frame.name,
            f"{frame.name}{where}: {total_us:.2f} µs, {self._share(total_us)}; "
            f"{frame.self_us:.2f} µs of its own; {calls}",
        )
        self.deepest = max(self.deepest, depth)
        for child in frame.children:
            x += self.draw(child, x, depth + 1)
        return width

    def draw_rest(self, time_us: float, x: float) -> None:
        """Draw the time that the calls do not explain."""
        width = self._width(time_us)
        if width >= LEAST_SHARE * _INNER:
            name = "not explained"
            tip = f"{name}: {time_us:.2f} µs, {self._share(time_us)}"
            self._rect(x, 0, width, "rest", name, tip)

    def _rect(self, x: float, depth: int, width: float, fill: _Fill, name: str, tip: str) -> None:
        y = _HEAD + depth * _ROW
        drawn = (
            f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW - 1}" rx="1" '
            f'fill="{_FILLS[fill]}" stroke="#ffffff" stroke-width="0.6"/>'
        )
        if text := _fitting(name, width):
            drawn += svg.text(x + _PADDING, y + 14, text)
        self.parts.append(svg.tipped(tip, drawn))

    def _width(self, time_us: float) -> float:
        return _INNER * time_us / self._whole_us if self._whole_us else 0.0

    def _share(self, time_us: float) -> str:
        share = format_percent(100 * time_us / self._whole_us) if self._whole_us else "–"
        return f"{share} % of {'what its calls add up to' if self.profile.exceeds else 'the step'}"


def _legend(profile: HostProfile) -> list[str]:
    """Return the step's time, and a legend of the colours."""
    said = f"step of {profile.plain_us:.2f} µs without a handler"
    if profile.exceeds:
        said += f"; its calls add up to {-profile.unexplained_us:.2f} µs more"
    parts = [svg.text(MARGIN, 44, said, "#555555")]
    x = WIDTH - MARGIN - 270
    for fill, name in _LEGEND.items():
        if fill == "rest" and profile.unexplained_us <= 0:
            continue
        parts += [
            f'<rect x="{x}" y="34" width="12" height="12" fill="{_FILLS[fill]}"/>',
            svg.text(x + 17, 44, name),
        ]
        x += 34 + 7 * len(name)
    return parts


def _note(canvas: _Canvas) -> str:
    if not canvas.profile.frames:
        return "The step makes no call of a Python function or of a builtin."
    if not canvas.left_out:
        return "All functions are drawn."
    one = canvas.left_out == 1
    return (
        f"{canvas.left_out} frame{'' if one else 's'} of less than {100 * LEAST_SHARE:g} % of the "
        f"width {'is' if one else 'are'} left out, {canvas.left_out_us:.2f} µs"
        f"{'' if one else ' together'}."
    )


def _fitting(name: str, width: float) -> str:
    """Return the part of a name that fits: all, its last component, that cut short, or nothing."""
    room = int((width - 2 * _PADDING) / _CHARACTER)
    name = one_line(name)
    for text in (name, name.rpartition(".")[2]):
        if text and len(text) <= room:
            return text
    return svg.cut(name.rpartition(".")[2] or name, room) if room >= _FEWEST_CHARACTERS else ""


def _total(frame: HostFrame) -> float:
    """Return the sum of the medians of a frame and its callees: they fit into their parent."""
    return frame.self_us + sum(map(_total, frame.children))


def _count(frame: HostFrame) -> int:
    return 1 + sum(map(_count, frame.children))
