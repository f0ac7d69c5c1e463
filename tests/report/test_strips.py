"""Strips beside the cells of a wide terminal: intervals on one axis, in cells of text."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from rich.cells import cell_len
from support.judgements import judgement, rich
from support.timelines import shown

from bt_bench.analysis import Verdict
from bt_bench.base import Axis, Cell, Document, Heading, Strip, Table, Tone
from bt_bench.cli.encoding import spell_what_streams_lack
from bt_bench.report.axis import LogAxis, SpeedUp, axis_of, within_reach
from bt_bench.report.console import render_plain
from bt_bench.report.formats.judged_strips import JudgedStrips
from bt_bench.report.formats.table_format import verdict_document
from bt_bench.report.strips import LEAST_CELLS, LEAST_TERMINAL, MOST_CELLS, strip_text, tick_text

GLYPHS = "●○├┤<>─┼"


def draw(axis: LogAxis, low: float, point: float, high: float, cells: int) -> str:
    return strip_text(Strip(axis.place(SpeedUp(low, point, high))), axis.ticks(), cells)


def ends(text: str) -> tuple[int, int]:
    drawn = [index for index, glyph in enumerate(text) if glyph in GLYPHS]
    return drawn[0], drawn[-1]


def drawings(count: int = 300):
    """Yield an axis, four ordered factors within it and a number of cells, all of them random."""
    random = Random(58)
    for _ in range(count):
        first, last = random.uniform(0.01, 0.99), random.uniform(1.01, 100)
        axis = axis_of([SpeedUp(first, 1.0, last)])
        ordered = sorted(first * (last / first) ** random.random() for _ in range(5))
        yield axis, ordered, random.randint(1, MOST_CELLS)


def test_a_strip_is_as_wide_as_asked_for_and_its_dot_is_within_its_ends():
    spell_what_streams_lack()
    for axis, (low, _, point, _, high), cells in drawings():
        for tone, dot in ((None, "●"), (Tone.OPEN, "○")):
            interval = axis.place(SpeedUp(low, point, high))
            text = strip_text(Strip(interval, tone), axis.ticks(), cells)
            assert cell_len(text) == len(text) == cells
            assert len(text.encode("ascii", "bt_bench.spell")) == cells
            assert ends(text)[0] <= text.index(dot) <= ends(text)[1]


def test_larger_factors_are_further_right_and_narrower_intervals_within_wider_ones():
    for axis, factors, cells in drawings():
        places = [draw(axis, each, each, each, cells).index("●") for each in factors]
        assert all(first <= second for first, second in pairwise(places))
        lowest, low, point, high, highest = factors
        outer, inner = (
            ends(draw(axis, *each, cells))
            for each in ((lowest, point, highest), (low, point, high))
        )
        assert outer[0] <= inner[0] <= inner[1] <= outer[1]


def test_an_interval_touches_the_mark_only_if_it_includes_no_difference():
    for axis, (low, _, point, _, high), cells in drawings():
        if cells >= LEAST_CELLS:
            (mark,) = {
                index for index, glyph in enumerate(draw(axis, 1, 1, 1, cells)) if glyph == "●"
            }
            first, last = ends(draw(axis, low, point, high, cells))
            assert (first <= mark <= last) == (low <= 1 <= high)


@pytest.mark.parametrize(
    ("low", "point", "high", "drawn"),
    [
        (0.6, 0.7, 0.8, "  ├─●─┤   ┆         "),
        (0.9, 0.95, 1.3, "        ├●┼──┤      "),
        (1.2, 1.2, 1.2, "          ┆ ●       "),
        (0.1, 0.8, 9.0, "<─────●───┼────────>"),
        (0.4, 0.9, 0.95, "<───────●┤┆         "),
    ],
)
def test_it_has_ends_or_arrows_and_a_dot_however_narrow(low, point, high, drawn):
    assert draw(LogAxis(0.5, 2.0), low, point, high, 20) == drawn


def test_the_texts_of_ticks_do_not_touch_and_the_mark_has_its_own():
    for axis, _, cells in drawings():
        text = tick_text(axis.ticks(), cells)
        assert len(text) == cells
        assert cells < 3 or "1 ×" in text
        assert set(text.replace("1 ×", "").split()) <= {
            tick.text.removesuffix(" ×") for tick in axis.ticks()
        }


def test_one_wide_interval_does_not_push_all_estimates_together():
    figures = [SpeedUp(1.01, 1.02, 1.03), SpeedUp(0.01, 1.05, 100.0)]
    axis = axis_of(within_reach(figures))
    assert axis.last / axis.first < 2
    assert axis.place(figures[0]).beyond == (False, False)
    assert axis.place(figures[1]).beyond == (True, True)


def run_table() -> Document:
    """Return a table with a long name, two columns with strips, and a row without any."""
    axis = axis_of([SpeedUp(0.8, 1.2, 2.0)])
    strip = Strip(axis.place(SpeedUp(1.1, 1.2, 1.3)))
    drawn, blank = Cell("1.20 × (1.10–1.30)", strip=strip), Cell("–")
    rows = ((Cell("x" * 30), drawn, drawn), (Cell("y"), blank, drawn), (Cell("z"), blank, blank))
    columns = ("Case", "one", "two")
    table = Table(columns, (Heading("host"), *rows), 1, axis=Axis(axis.ticks(), "The legend."))
    return Document("title", (table,), ())


def test_only_a_wide_terminal_has_strips_and_the_other_columns_stay_as_they_are():
    narrow, wide = (
        shown(run_table(), width).splitlines() for width in (LEAST_TERMINAL - 1, LEAST_TERMINAL)
    )
    assert "●" not in "".join(narrow)
    assert narrow == render_plain(run_table()).splitlines()
    assert max(map(cell_len, wide)) <= LEAST_TERMINAL
    assert wide.pop() == "The legend."
    drawn = [line.count("●") for line in wide[-3:]]
    assert drawn == [2, 1, 0]
    without = [line.translate(dict.fromkeys(map(ord, f"{GLYPHS}┆"))).split() for line in wide[3:]]
    assert without == [line.replace("─", "").split() for line in narrow[3:]]


@pytest.mark.parametrize("width", [LEAST_TERMINAL, 130, 200])
def test_a_mark_stands_below_its_tick_in_each_column(width):
    _, title, rule, *_, first, second, _, _ = shown(run_table(), width).splitlines()
    ticks = [index for index in range(width) if title.startswith("1 ×", index)]
    assert [index for index, glyph in enumerate(first) if glyph == "┆"] == ticks
    assert [index for index, glyph in enumerate(second) if glyph == "┆"] == ticks[1:]
    assert len(first) < len(rule) <= width


def test_a_verdict_has_the_strip_of_its_figures_or_none():
    every = rich().judgements
    strips = JudgedStrips(every)
    drawn = {each.verdict for each in every if strips.of(each) is not None}
    assert {Verdict.SLOWER, Verdict.FASTER, Verdict.SAME, Verdict.INCONCLUSIVE} == drawn
    assert not [each for each in every if each.evidence is None and strips.of(each)]
    tones = {each.verdict: strips.of(each).tone for each in every if strips.of(each)}
    assert tones[Verdict.INCONCLUSIVE] is Tone.OPEN
    (slower, *_) = [each for each in every if each.verdict is Verdict.SLOWER and strips.of(each)]
    assert strips.of(replace(slower, verdict=Verdict.INVALID)) is None
    assert JudgedStrips([judgement()]).axis() is None


def test_a_comparison_explains_its_strips_where_it_has_them():
    document = verdict_document(rich())
    wide, narrow = (shown(document, width) for width in (160, 80))
    assert "right of 1 × is faster, ○ undecided" in wide
    assert "Strips" not in narrow
    without = replace(rich(), judgements=rich().judgements[-1:])
    assert "Strips" not in shown(verdict_document(without), 160)
