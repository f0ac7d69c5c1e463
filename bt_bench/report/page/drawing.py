"""Line charts in SVG, with an axis of sizes or steps and one of times; colours are the page's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from bt_bench.report.page.parts import Line, LineChart

_WIDTH, _HEIGHT = 360, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 10, 38
_DIGIT = 7  # the width of one, at most
_TICK_STEPS = (1, 2, 5)
_MOST_TICKS = 6


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float
    logarithmic: bool
    whole: bool = False  # of counts, between which there is no tick

    def at(self, value: float) -> float:
        low, high, value = (self._of(each) for each in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def _of(self, value: float) -> float:
        return math.log(value) if self.logarithmic else value

    def ticks(self) -> list[float]:
        found = self._decades() if self.logarithmic else []
        return found if 2 <= len(found) <= _MOST_TICKS else self._even()

    def _decades(self) -> list[float]:
        first, last = (math.floor(math.log10(each)) for each in (self.low, self.high))
        for steps in (_TICK_STEPS, (1,), (1,)):
            found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
            found = [each for each in found if self.low <= each <= self.high]
            if len(found) <= _MOST_TICKS:
                return found
        return found[:: math.ceil(len(found) / _MOST_TICKS)]

    def _even(self) -> list[float]:
        span = self.high - self.low
        if not span:
            return [self.low]
        rough = span / (_MOST_TICKS - 1)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(each * power for each in (*_TICK_STEPS, 10) if each * power >= rough)
        step = max(step, 1.0) if self.whole else step
        first = math.ceil(self.low / step)
        return [step * each for each in range(first, math.floor(self.high / step) + 1)]


def line_drawing(chart: LineChart) -> Markup:
    """Return the drawing of a chart of lines."""
    points = [point for line in chart.lines for point in line.points]
    xs, ys = [x for x, _ in points], [*(y for _, y in points), *chart.levels]
    x = _Scale(
        min(xs),
        max(xs),
        _LEFT + 6,
        _WIDTH - _RIGHT - 6,
        chart.logarithmic,
        all(map(float.is_integer, xs)),
    )
    y = _Scale(min(ys), max(ys), _HEIGHT - _BOTTOM - 4, _TOP + 4, min(ys) > 0)
    dashed = [f"M{_LEFT} {y.at(each):.1f}H{_WIDTH - _RIGHT}" for each in chart.levels]
    dashed += [f"M{x.at(each):.1f} {_TOP}V{_HEIGHT - _BOTTOM}" for each in chart.marks]
    parts = [
        *_axes(x, y, chart.across, chart.up),
        *(_path("level", d) for d in dashed),
        *_lines(chart.lines, x, y, chart.joined),
    ]
    return Markup(
        '<svg role="img" viewBox="0 0 {} {}" width="{}" height="{}" aria-label="{}">{}</svg>'
    ).format(_WIDTH, _HEIGHT, _WIDTH, _HEIGHT, chart.alternative, Markup("").join(parts))


def _axes(x: _Scale, y: _Scale, across: str, up: str) -> Iterator[Markup]:
    bottom = _HEIGHT - _BOTTOM
    for value in x.ticks():
        yield _path("grid", f"M{x.at(value):.1f} {_TOP}V{bottom}")
        text = _number(value)
        beyond = x.at(value) + _DIGIT * len(text) / 2 > _WIDTH
        yield _text(x.at(value), bottom + 14, text, "end" if beyond else "middle")
    for value in y.ticks():
        yield _path("grid", f"M{_LEFT} {y.at(value):.1f}H{_WIDTH - _RIGHT}")
        yield _text(_LEFT - 4, y.at(value) + 4, _number(value), "end")
    yield _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, across, "middle")
    yield Markup(
        '<text transform="translate(11 {:.0f}) rotate(-90)" text-anchor="middle">{}</text>'
    ).format((_TOP + bottom) / 2, up)


def _lines(lines: Sequence[Line], x: _Scale, y: _Scale, joined: bool) -> Iterator[Markup]:
    for line in lines:
        places = [(x.at(first), y.at(second)) for first, second in line.points]
        if joined and len(places) > 1:
            d = "M" + "L".join(f"{first:.1f} {second:.1f}" for first, second in places)
            yield _path(f"line c{line.arm % 8}", d)
        for index, (first, second) in enumerate(places):
            tip = line.tips[index] if index < len(line.tips) else ""
            title = Markup("<title>{}</title>").format(tip) if tip else ""
            yield Markup('<circle class="c{}" cx="{:.1f}" cy="{:.1f}" r="2.5">{}</circle>').format(
                line.arm % 8, first, second, title
            )


def _path(kind: str, d: str) -> Markup:
    return Markup('<path class="{}" d="{}"/>').format(kind, d)


def _text(x: float, y: float, content: str, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        x, y, anchor, content
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
