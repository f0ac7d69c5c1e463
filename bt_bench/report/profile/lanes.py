"""A step as a picture: host and device at work, on one axis of time for all variants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from bt_bench.analysis.profile import Explained, Lane, RowKind, TimelineRow
from bt_bench.base import format_bytes, one_line
from bt_bench.report.profile import svg
from bt_bench.report.profile.sentences import residual_error
from bt_bench.report.profile.svg import MARGIN, WIDTH

LABEL_ROWS = 6
"""Rows of names below a variant's operations; other names are only in tooltips."""

OVERLAPS_US = 0.1
"""Operations that overlap by no more share a row: medians of times do not add up exactly."""

_LEFT = 190  # of the axis; names and lanes are written before it
_RIGHT = WIDTH - 84  # of the axis; totals are written behind it
_HEAD = 66  # above the first variant: title and legend
_FOOT = 58  # below the last one: axis and note
_BAR = 20
_BETWEEN = 22  # host and device, where the arrows are
_AFTER_ROW = 3  # of the device's bars
_LABEL_ROW = 14
_AFTER_VARIANT = 22
_LEAST_BAR = 1.5
_FONT = 10
_CHARACTER = 0.61 * _FONT  # the width of one in a monospaced font
_PADDING = 3
_NAME_CHARACTERS = 18  # of a variant, in each of two lines
_LABEL_CHARACTERS = (30, 20, 12)  # of an operation's name below its bar; the most that fit
_FEWEST_CHARACTERS = 12  # of an operation's name that is cut inside its bar
_MOST_TICKS = 10

_FILLS = {
    RowKind.CODE: "#9ecae1",
    RowKind.LAUNCH: "#fdae6b",
    RowKind.CALL: "#c9b3de",
    RowKind.WAIT: "#e3e3e3",
    RowKind.OPERATION: "#8fd19e",
}
_LEGEND = {
    RowKind.CODE: "host's own code",
    RowKind.LAUNCH: "launch",
    RowKind.CALL: "other call of CUDA",
    RowKind.WAIT: "wait for the GPU",
    RowKind.OPERATION: "on the GPU",
}
_RETURN = "the step's call returns"
_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" '
    'markerHeight="6" orient="auto"><path d="M0 0L6 3L0 6z" fill="#666666"/></marker></defs>'
)
_DARK, _GREY, _LIGHT = "#222222", "#666666", "#e8e8e8"


def lanes_svg(explained: Sequence[Explained], title: str) -> str:
    """Return the steps of some variants as a standalone SVG, without the profiler's overhead.

    Each variant has a lane of the host above one of the device, and all variants share the axis of
    time. Arrows lead from a launching call to its operation; a dashed line marks the return of the
    step's call. At the right end is the time of the whole step, measured before any profiler was
    loaded. Tooltips have full names and all times.

    Args:
        explained: the steps, from top to bottom; readable with up to six.
        title: title of the picture.
    """
    axis = _Axis(explained)
    parts: list[str] = []
    unnamed = 0
    y = float(_HEAD)
    for step in explained:
        band = _Band(step, axis, y)
        parts += band.parts
        unnamed += band.unnamed
        y = band.bottom
        parts.append(_line(MARGIN, y - 8, WIDTH - MARGIN, y - 8, _LIGHT))
    height = round(y) + _FOOT
    return svg.picture(
        height,
        title,
        int((WIDTH - 2 * MARGIN) / 10),
        [
            *_legend(),
            *axis.drawn(_HEAD - 10, y - 8),
            *parts,
            svg.text(MARGIN, height - 12, _note(explained, unnamed), _GREY),
        ],
        [_ARROW],
    )


def free_rows(spans: Sequence[tuple[float, float]]) -> list[int]:
    """Return the row of each span, from 0: the first row that has no overlapping span.

    Args:
        spans: start and end of each, in any order.
    """
    ends: list[float] = []
    rows = [0] * len(spans)
    for place in sorted(range(len(spans)), key=lambda place: spans[place]):
        start, end = spans[place]
        row = next((row for row, busy in enumerate(ends) if busy <= start), len(ends))
        if row == len(ends):
            ends.append(end)
        ends[row] = end
        rows[place] = row
    return rows


class _Axis:
    """The axis of time that all variants share, from the step's call on."""

    def __init__(self, explained: Sequence[Explained]) -> None:
        ends = [row.end_us for step in explained for row in step.rows]
        self._end_us = max([*ends, *(step.step_us for step in explained)], default=0.0)

    def x(self, time_us: float) -> float:
        """Return the x of a time, clamped: clocks that differ can put it before the call."""
        share = time_us / self._end_us if self._end_us > 0 else 0.0
        return _LEFT + (_RIGHT - _LEFT) * min(1.0, max(0.0, share))

    def drawn(self, top: float, bottom: float) -> Iterator[str]:
        """Yield ticks, with lines across all variants."""
        for tick in self._ticks():
            x = self.x(tick)
            yield _line(x, top, x, bottom + 4, _LIGHT)
            yield svg.text(x, bottom + 17, f"{tick:g}", _GREY, anchor="middle", size=11)
        label = "µs from the step's call"
        yield svg.text(MARGIN, bottom + 17, label, _GREY, size=11)

    def _ticks(self) -> list[float]:
        step = next(
            (
                digit * 10.0**power
                for power in range(-3, 9)
                for digit in (1, 2, 5)
                if digit * 10.0**power * _MOST_TICKS >= self._end_us
            ),
            0.0,
        )
        if self._end_us <= 0 or step <= 0:
            return [0.0]
        return [round(place * step, 6) for place in range(int(self._end_us / step + 1e-9) + 1)]


class _Band:
    """The two lanes of a variant.

    Args:
        step: step of the variant.
        axis: axis of all variants.
        top: top of the band.
    """

    def __init__(self, step: Explained, axis: _Axis, top: float) -> None:
        self._step = step
        self._axis = axis
        self._host_y = top
        self._device_y = top + _BAR + _BETWEEN
        self.parts: list[str] = []
        self.unnamed = 0
        operations = [row for row in step.rows if row.lane is Lane.DEVICE]
        spans = [(row.start_us, row.end_us - OVERLAPS_US) for row in operations]
        rows = free_rows(spans)
        depth = max(rows, default=0) + 1
        self._device_bottom = self._device_y + depth * (_BAR + _AFTER_ROW) - _AFTER_ROW
        self._names()
        for row in step.rows:
            if row.lane is Lane.HOST:
                self._host(row)
        placed = [(row, self._row_y(place)) for row, place in zip(operations, rows, strict=True)]
        outside = [(row, y) for row, y in placed if not self._operation(row, y)]
        for row, y in placed:
            self._arrow(row, y)
        used = self._labels(outside)
        self._end()
        self.bottom = self._device_bottom + used * _LABEL_ROW + _AFTER_VARIANT

    def _row_y(self, row: int) -> float:
        return self._device_y + row * (_BAR + _AFTER_ROW)

    def _names(self) -> None:
        name = one_line(self._step.name)
        lines = _two_lines(name, _NAME_CHARACTERS)
        texts = "".join(
            svg.text(MARGIN, self._host_y + 14 + 15 * place, line, bold=True)
            for place, line in enumerate(lines)
        )
        self.parts.append(svg.tipped(name, texts))
        for y, lane in ((self._host_y, "host"), (self._device_y, "GPU")):
            self.parts.append(svg.text(_LEFT - 8, y + 14, lane, _GREY, anchor="end", size=11))

    def _host(self, row: TimelineRow) -> None:
        name = _LEGEND[row.what] if row.what in (RowKind.CODE, RowKind.WAIT) else one_line(row.name)
        texts = (f"{name} {row.length_us:.1f}", f"{row.length_us:.1f}", f"{row.length_us:.0f}")
        self._bar(row, self._host_y, name, texts)

    def _operation(self, row: TimelineRow, y: float) -> bool:
        """Draw an operation; return whether its name fits inside."""
        name, length = one_line(row.name), f" {row.length_us:.1f}"
        _, width = self._place(row)
        room = int((width - 2 * _PADDING) / _CHARACTER) - len(length)
        fits = len(name) <= room or room >= _FEWEST_CHARACTERS
        self._bar(row, y, name, (f"{svg.cut(name, room)}{length}",) if fits else ())
        return fits

    def _bar(self, row: TimelineRow, y: float, name: str, texts: Sequence[str]) -> None:
        x, width = self._place(row)
        room = int((width - 2 * _PADDING) / _CHARACTER)
        text = next((text for text in texts if len(text) <= room), "")
        drawn = _rect(x, y, width, _FILLS[row.what])
        if text:
            drawn += _mono(self._text_x(x, width, text), y + 14, text)
        self.parts.append(svg.tipped(self._tip(row, name), drawn))

    def _text_x(self, x: float, width: float, text: str) -> float:
        """Return the start of a bar's text: after the dashed line if that would cross the text."""
        long = len(text) * _CHARACTER
        returns = self._axis.x(self._returns_us)
        behind = returns + _PADDING
        crossed = x < returns < x + _PADDING + long
        return behind if crossed and behind + long <= x + width else x + _PADDING

    def _place(self, row: TimelineRow) -> tuple[float, float]:
        x = self._axis.x(row.start_us)
        return x, max(_LEAST_BAR, self._axis.x(row.end_us) - x)

    def _tip(self, row: TimelineRow, name: str) -> str:
        said = [
            f"{name}: {row.start_us:.2f} to {row.end_us:.2f} µs, {row.length_us:.2f} µs long "
            f"(10–90 %: {row.low_us:.2f}–{row.high_us:.2f})"
        ]
        if row.moved_bytes is not None:
            said.append(f"moves {format_bytes(row.moved_bytes)}")
        if row.queued_us is not None:
            said.append(f"queued at {row.queued_us:.2f} µs")
        if row.submitted_us is not None:
            said.append(f"submitted at {row.submitted_us:.2f} µs")
        if row.launched_by is not None:
            call = self._step.rows[row.launched_by]
            said.append(f"launched by {call.name} at {call.start_us:.2f} µs")
        return "; ".join(said)

    def _arrow(self, row: TimelineRow, y: float) -> None:
        if row.launched_by is None:
            return
        call = self._step.rows[row.launched_by]
        x = self._axis.x((call.start_us + call.end_us) / 2)
        self.parts.append(
            _line(
                x,
                self._host_y + _BAR,
                self._axis.x(row.start_us),
                y - 1,
                _GREY,
                'marker-end="url(#arrow)"',
            )
        )

    def _labels(self, placed: Sequence[tuple[TimelineRow, float]]) -> int:
        """Draw names below the operations that lack room for them; return the rows needed.

        Names are placed from right to left: a name goes below those to its right, and the line that
        leads to it crosses none of them.
        """
        # The free part of each row ends where a name in it, or a line to a lower row, begins.
        free = [float(WIDTH - MARGIN)] * LABEL_ROWS
        used = 0
        lines: list[str] = []
        texts: list[str] = []
        for row, bar_y in sorted(placed, key=lambda each: each[0].start_us, reverse=True):
            at, bar_width = self._place(row)
            found = self._free_place(row, at, free)
            if found is None:
                self.unnamed += 1
                continue
            place, x, text = found
            free[: place + 1] = [min(x, end) for end in free[: place + 1]]
            used = max(used, place + 1)
            y = self._device_bottom + (place + 1) * _LABEL_ROW
            middle = at + min(bar_width, 4) / 2
            lines.append(_line(middle, bar_y + _BAR, middle, y - 9, "#aaaaaa"))
            texts.append(svg.tipped(self._tip(row, one_line(row.name)), _mono(x, y, text)))
        # Texts last: at the right edge a line can meet the text of another operation.
        self.parts += [*lines, *texts]
        return used

    def _free_place(
        self, row: TimelineRow, at: float, free: Sequence[float]
    ) -> tuple[int, float, str] | None:
        """Return row, start and text of an operation's name, cut to fit; `None` if it cannot."""
        for characters in _LABEL_CHARACTERS:
            text = f"{svg.cut(one_line(row.name), characters)} {row.length_us:.1f}"
            width = len(text) * _CHARACTER + 2 * _PADDING
            # At the right edge a name begins before its operation.
            x = min(at, WIDTH - MARGIN - width)
            for place, end in enumerate(free):
                if x + width <= end:
                    return place, x, text
        return None

    @property
    def _returns_us(self) -> float:
        """The time when the call returns, without the profiler's overhead, as in the rows."""
        waits = [row.start_us for row in self._step.rows if row.what is RowKind.WAIT]
        return waits[-1] if waits else self._step.host_us

    def _end(self) -> None:
        """Draw the return of the call, and the whole step."""
        step, returns = self._step, self._returns_us
        x = self._axis.x(returns)
        line = _line(
            x, self._host_y - 5, x, self._device_bottom + 3, "#b22222", 'stroke-dasharray="4 3"'
        )
        self.parts.append(svg.tipped(f"{_RETURN}: {returns:.2f} µs", line))
        tip = (
            f"the whole step: {step.step_us:.2f} µs "
            f"(10–90 %: {step.step_low_us:.2f}–{step.step_high_us:.2f})"
        )
        if step.residual_us is not None:
            tip += f"; not explained by the traced steps: {step.residual_us:.2f} µs"
            tip += f" {residual_error(step)}".rstrip()
        x = self._axis.x(step.step_us)
        mark = _line(x, self._host_y - 3, x, self._host_y + _BAR + 3, _DARK)
        text = svg.text(x + 6, self._host_y + 15, f"{step.step_us:.1f} µs", bold=True)
        self.parts.append(svg.tipped(tip, mark + text))


def _legend() -> list[str]:
    """Return a legend of colours and lines."""
    parts = []
    x = float(MARGIN)
    for what, name in _LEGEND.items():
        parts.append(f'<rect x="{x:.1f}" y="34" width="12" height="12" fill="{_FILLS[what]}"/>')
        parts.append(svg.text(x + 17, 44, name))
        x += 38 + 6.3 * len(name)
    parts.append(_line(x, 40, x + 18, 40, _GREY, 'marker-end="url(#arrow)"'))
    parts.append(svg.text(x + 24, 44, "enqueues"))
    x += 100
    parts.append(_line(x + 4, 33, x + 4, 48, "#b22222", 'stroke-dasharray="4 3"'))
    parts.append(svg.text(x + 12, 44, _RETURN))
    return parts


def _note(explained: Sequence[Explained], unnamed: int) -> str:
    if not explained:
        return "There is no step that could be explained."
    said = "Medians, in µs, less the cost of the profiler."
    if unnamed:
        one = unnamed == 1
        said += (
            f" {unnamed} operation{'' if one else 's'} "
            f"{'has its name' if one else 'have their names'} only on hovering."
        )
    return said


def _two_lines(name: str, room: int) -> list[str]:
    """Split a name into one or two lines, after a separator if one fits."""
    if len(name) <= room:
        return [name]
    cuts = [place + 1 for place, character in enumerate(name[:room]) if character in "_.-/: "]
    at = cuts[-1] if cuts else room
    return [name[:at], svg.cut(name[at:], room)]


def _rect(x: float, y: float, width: float, fill: str) -> str:
    # White edges would hide the narrowest bars.
    edge = ' stroke="#ffffff" stroke-width="0.6"' if width > 4 * _LEAST_BAR else ""
    return (
        f'<rect x="{x:.2f}" y="{y:g}" width="{width:.2f}" height="{_BAR}" rx="1" '
        f'fill="{fill}"{edge}/>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return (
        f'<line x1="{x1:.2f}" y1="{y1:g}" x2="{x2:.2f}" y2="{y2:g}" stroke="{colour}"'
        f"{' ' if more else ''}{more}/>"
    )


def _mono(x: float, y: float, text: str) -> str:
    return (
        f'<text x="{x:.2f}" y="{y:g}" font-size="{_FONT}" fill="{_DARK}" {svg.FAMILY}>'
        f"{escape(text)}</text>"
    )
