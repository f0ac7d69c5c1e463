"""The table, the strips, the bars and the regimes of a page, on a run with made-up figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import scenarios

from bt_bench.analysis import Verdict
from bt_bench.base import Table
from bt_bench.report.page.bars import budget_chart, parts_of
from bt_bench.report.page.cases import case_part
from bt_bench.report.page.drawing import line_drawing
from bt_bench.report.page.grid import judged_grid
from bt_bench.report.page.parts import BarChart, IntervalChart, LineChart
from bt_bench.report.page.regimes import regime_chart
from bt_bench.report.page.speed_ups import primary_groups, speed_up_chart
from bt_bench.report.page.windows import window_charts
from bt_bench.report.run.arranged import Arms, arrange
from bt_bench.suites.block_tables import operations as ops


@pytest.fixture(scope="module")
def arms() -> Arms:
    return arrange(scenarios.gpu_run())


def names_of(arms: Arms) -> list[str]:
    return [arm.name for arm in arms.all]


def test_a_row_for_each_case_and_variant(arms):
    assert arms.judged is not None
    judgements = arms.judged.judgements
    grid = judged_grid(judgements, names_of(arms), {"step/small": "case-0"}.get)
    deciding = {(each.key, each.other) for each in judgements if not each.exploratory}
    assert len(grid.rows) == len(deciding)
    assert {len(row) for row in grid.rows} == {len(grid.columns)}
    assert grid.columns[-1].title == "Launches"  # of counts, beside times
    links = {row[0].link for row in grid.rows}
    assert links == {"case-0", None}
    strips = [cell.strip for row in grid.rows for cell in row if cell.strip]
    assert all(0 <= strip.low <= strip.point <= strip.high <= 1 for strip in strips)
    said = {cell.text for row in grid.rows for cell in row if cell.tone}
    assert said & {verdict.value for verdict in Verdict}


def test_a_few_cases_have_a_line_each_and_many_a_range(arms):
    assert arms.judged is not None
    group = primary_groups(arms.judged.judgements)[0]
    few = speed_up_chart(group, names_of(arms))
    assert isinstance(few, IntervalChart)
    assert sum(len(each.marks) for each in few.groups) == len(group.judgements)
    assert len(few.data.rows) == len(group.judgements)
    many = speed_up_chart(
        type(group)(group.operation, group.title, group.metric, group.judgements * 20),
        names_of(arms),
    )
    assert isinstance(many, IntervalChart)
    (ranges,) = many.groups
    assert [mark.label for mark in ranges.marks] == names_of(arms)[1:]
    assert all(mark.inner for mark in ranges.marks)


def test_the_parts_of_a_step_are_in_its_bar(arms):
    case_id = arms.cases_of(ops.STEP)[0]
    chart = budget_chart(arms, case_id)
    assert isinstance(chart, BarChart)
    assert len(chart.bars) == len(chart.data.rows)
    longest = max(sum(part.share for part in bar.segments) for bar in chart.bars)
    assert longest == pytest.approx(1, abs=0.05)
    assert {part.kind for bar in chart.bars for part in bar.segments} == {*dict(chart.legend)}


def test_an_overshoot_is_no_negative_part():
    class Budget:
        host_us, device_left_us, latency_us, residual_us = 8.0, 1.0, 2.0, -3.0

    assert parts_of(Budget()) == {"host": 8.0, "device": 1.0, "latency": 2.0, "rest": 0.0}


def test_regimes_stand_side_by_side(arms):
    chart = regime_chart(arms, ops.STEP)
    assert isinstance(chart, IntervalChart)
    titles = [group.title for group in chart.groups]
    assert "a step on an idle GPU" in titles
    assert len(titles) == len(set(titles)) >= 2
    assert regime_chart(arrange(scenarios.cpu_run()), ops.STEP) is None


def test_an_axis_of_ranges_has_no_room_for_the_intervals_of_cases(arms):
    assert arms.judged is not None
    wide = tuple(
        replace(each, low=each.ratio / 50, high=each.ratio * 50) if each.ratio else each
        for each in arms.judged.judgements
    )
    group = primary_groups(wide * 20)[0]
    arms = replace(arms, judged=replace(arms.judged, judgements=wide))
    for chart in (speed_up_chart(group, names_of(arms)), regime_chart(arms, ops.STEP)):
        assert chart is not None
        places = [tick.at for tick in chart.ticks if tick.strong]
        for mark in (mark for each in chart.groups for mark in each.marks):
            places += [mark.interval.low, mark.interval.high]
        assert max(places) - min(places) > 0.9


def test_a_window_names_its_worst_steps():
    arms = arrange(scenarios.trace_run())
    charts = [chart for each in arms.case_ids for chart in window_charts(arms, each)]
    assert charts
    assert all(": worst in step " in chart.title for chart in charts)
    assert all("<svg" in line_drawing(chart) for chart in charts)


def test_a_case_has_its_charts_unless_the_run_is_large(arms):
    case_id = arms.cases_of(ops.STEP)[0]
    full = case_part(arms, case_id, "case-0", 1, charts=True)
    lean = case_part(arms, case_id, "case-0", 3, charts=False)
    assert any(isinstance(block, BarChart) for block in full.blocks)
    assert not any(isinstance(block, BarChart | LineChart) for block in lean.blocks)
    assert sum(isinstance(block, Table) for block in lean.blocks) == 1
    assert (full.remark, lean.remark) == ("", "One round in 3 is shown.")
    assert len(lean.samples) < len(full.samples)
