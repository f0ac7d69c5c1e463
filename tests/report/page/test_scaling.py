"""Growth of times with sizes: a point for each case, or medians over bins of many cases."""

from __future__ import annotations

import re
from dataclasses import replace

from support.factories import make_case, make_result, make_workload

from bt_bench.report.page.drawing import line_drawing
from bt_bench.report.page.scaling import scaling_charts
from bt_bench.report.run.arranged import Arms, arrange
from bt_bench.results.run.nouns import Quantity
from bt_bench.suites.block_tables import operations as ops


def arms_of(count: int) -> Arms:
    """Two variants, whose times are the number of requests, and half of it."""

    def cases(factor: float):
        for index in range(1, count + 1):
            workload = make_workload(f"case{index}")
            workload = workload.model_copy(update={"sizes": {"num_reqs": [index]}})
            samples = {Quantity.GPU_US: [[index * factor]] * 3}
            yield make_case(f"case{index}", ops.STEP, samples, workload=workload)

    results = [
        make_result(name, [*cases(factor)]) for name, factor in (("baseline", 1.0), ("fused", 0.5))
    ]
    return arrange(results)


def test_a_few_cases_have_a_point_each():
    (chart,) = scaling_charts(arms_of(4), ops.STEP)
    assert chart.title == "Whole step: GPU time over num reqs"
    assert line_drawing(chart).count("<circle") == 8
    rows = [[cell.text for cell in row] for row in chart.data.rows]
    assert rows[0] == ["case1", "1.000", "1.000", "0.5000"]
    assert [row[0] for row in rows] == ["case1", "case2", "case3", "case4"]
    assert "fused: 0.500 µs at 1, 2.00 µs at 4." in chart.alternative


def test_times_below_zero_are_on_an_even_axis():
    (chart,) = scaling_charts(arms_of(4), ops.STEP)
    (line, *_) = chart.lines
    below = replace(chart, lines=[replace(line, points=((1.0, -10.0), (2.0, 3.0), (4.0, 900.0)))])
    heights = re.findall(r'text-anchor="end">(\d+)<', line_drawing(below))
    assert heights == ["0", "200", "400", "600", "800"]


def test_many_cases_become_medians_of_bins():
    (chart,) = scaling_charts(arms_of(400), ops.STEP)
    assert "(medians of 400 cases in at most 40 bins of num reqs)" in chart.title
    assert line_drawing(chart).count("<circle") == 80
    rows = [[cell.text for cell in row] for row in chart.data.rows]
    assert len(rows) == 40
    assert rows[0] == ["median of 10 cases", "5.500", "5.500", "2.750"]
    assert rows[-1] == ["median of 10 cases", "395.5", "395.5", "197.8"]


def test_two_sizes_are_too_few_for_a_line():
    assert not [*scaling_charts(arms_of(2), ops.STEP)]


def test_the_last_tick_is_not_cut_off():
    (chart,) = scaling_charts(arms_of(4), ops.STEP)
    points = tuple((x * 250_000, y) for x, y in chart.lines[0].points)
    wide = replace(chart, lines=(replace(chart.lines[0], points=points),))
    assert re.search(r'text-anchor="end">1,000,000<', line_drawing(wide))
    assert 'text-anchor="end">4<' not in line_drawing(chart)
