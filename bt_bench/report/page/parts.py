"""The parts of a page, independent of its markup: texts, charts, tables, and cases to open.

All texts are plain, and the templates escape them. Only drawings of profiles come as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from bt_bench.base import Bullets, Interval, SectionOf, Table, Tick, Tone


@dataclass(frozen=True)
class Mark:
    """One line of a chart of intervals.

    Args:
        label: its name.
        arm: index of the arm, for its colour.
        interval: its place on the axis; `None` if there is no figure.
        text: the figure in words, `8.7 × (8.4–9.0)`.
        word: the verdict.
        tone: the verdict's tone.
        inner: a second interval, drawn thicker; `None` for none.
    """

    label: str
    arm: int
    interval: Interval | None
    text: str
    word: str = ""
    tone: Tone | None = None
    inner: Interval | None = None


@dataclass(frozen=True)
class MarkGroup:
    """Lines under one title."""

    title: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A figure with its data.

    Args:
        name: identifies the chart in the page.
        title: its caption.
        alternative: its content in a sentence.
        data: the same figures as a table.
    """

    name: str
    title: str
    alternative: str
    data: Table


@dataclass(frozen=True, kw_only=True)
class IntervalChart(Chart):
    """Intervals of several cases and arms, in groups of lines, on one axis with ticks."""

    groups: tuple[MarkGroup, ...]
    ticks: tuple[Tick, ...]


@dataclass(frozen=True)
class Segment:
    """A part of a bar: its share of the axis, its kind for the colour, and its text."""

    kind: str
    share: float
    text: str


@dataclass(frozen=True)
class Bar:
    """A bar of segments after each other, with a text at its end."""

    label: str
    segments: tuple[Segment, ...]
    text: str


@dataclass(frozen=True, kw_only=True)
class BarChart(Chart):
    """Bars on one axis; `legend` has the kinds of segments with their names."""

    legend: tuple[tuple[str, str], ...]
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Line:
    """Points of one arm, in the order in which they are joined."""

    arm: int
    points: tuple[tuple[float, float], ...]
    tips: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LineChart(Chart):
    """Lines of points over an axis of sizes, steps or rounds.

    Args:
        lines: at least one point in all.
        across: title of the horizontal axis.
        up: title of the vertical axis.
        logarithmic: whether the horizontal axis is; all points are right of 0 then. The vertical
            one is where all points are above 0.
        joined: whether points are joined.
        levels: heights of dashed lines across, which the axis includes.
        marks: places of dashed lines upwards, within the points.
        arms: names of the lines if they are not the page's arms.
    """

    lines: Sequence[Line]
    across: str
    up: str = "µs"
    logarithmic: bool = False
    joined: bool = True
    levels: Sequence[float] = ()
    marks: Sequence[float] = ()
    arms: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Picture(Chart):
    """A drawing in SVG as wide as the page, with its own background, colours and text."""

    drawing: Markup


@dataclass(frozen=True)
class GridCell:
    """A cell of the large table.

    Args:
        text: as printed.
        small: a text after it, less prominent.
        strip: an interval drawn below it.
        arm: index of the arm, for the strip's colour.
        tone: the tone of a verdict.
        link: id of the part of the page that it opens.
    """

    text: str
    small: str = ""
    strip: Interval | None = None
    arm: int = 0
    tone: Tone | None = None
    link: str | None = None


@dataclass(frozen=True)
class GridColumn:
    """A column of the large table: its title, and whether it holds numbers."""

    title: str
    numeric: bool = False


@dataclass(frozen=True)
class Grid:
    """The large table, which can be sorted and filtered; `one` is the place of no change."""

    title: str
    caption: str
    columns: tuple[GridColumn, ...]
    rows: tuple[tuple[GridCell, ...], ...]
    one: float | None = None


Block = str | Bullets | Table | Chart | Grid
PageSection = SectionOf[Block]


@dataclass(frozen=True)
class CasePart:
    """One case, hidden until it is opened.

    Args:
        anchor: its id in the page.
        title: operation and name.
        blocks: its content.
        samples: its packed samples, in base64; empty for none.
        remark: a text about the samples.
    """

    anchor: str
    title: str
    blocks: tuple[Block, ...]
    samples: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Page:
    """A whole page.

    Args:
        title: the title, one line.
        answer: the sentences that answer who won, by how much, and how sure.
        warnings: reasons to doubt all of it, shown before anything else.
        remarks: conditions to know before the pictures are read, shown after the answer.
        sections: what follows.
        cases: the cases to open.
        arms: names of the arms, in the order of their colours.
        footer: where it comes from.
    """

    title: str
    answer: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    sections: tuple[PageSection, ...] = ()
    cases: tuple[CasePart, ...] = ()
    arms: tuple[str, ...] = ()
    footer: tuple[str, ...] = field(default=())
