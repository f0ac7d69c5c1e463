"""The page of a static gate: sentences first, and each figure that differs."""

from __future__ import annotations

from support.censuses import made_up

from bt_bench.analysis import judge_static
from bt_bench.base import Table
from bt_bench.report.page import render_page, static_page
from bt_bench.report.page.parts import Grid, Page
from bt_bench.results import StaticCensus


def page_of(base: StaticCensus, head: StaticCensus) -> Page:
    return static_page(judge_static(base, head, "main", "mine"), base, head)


def test_what_grew_is_said_first_and_what_differs_is_a_table():
    base = made_up((("sm_80", 32), ("sm_90", 30)), launches=[2], case_names=["one", "two"])
    head = made_up((("sm_80", 40), ("sm_90", 28)), launches=[3], case_names=["one", "two"])
    page = page_of(base, head)
    assert page.answer[1:4] == (
        "step/two: launches of kernel per step 2 → 3 (fused; sm_80, sm_90).",
        "kernel: registers of a thread 32 → 40 (fused; sm_80).",
        "1 more figure differs.",
    )
    table = page.sections[0].blocks[-1]
    assert isinstance(table, Table)
    assert len(table.rows) == 4
    (grid,) = page.sections[1].blocks
    assert isinstance(grid, Grid)
    titles = [column.title for column in grid.columns]
    assert titles[2:] == ["Variant", "Launches", "Compiled variants", "Registers", "Spills, bytes",
                          "Verdict"]  # fmt: skip
    first = [(cell.text, cell.small) for cell in grid.rows[0]]
    assert first[2:] == [("fused@mine", ""), ("3", "of 2"), ("1", "of 1"), ("40", "of 32, sm_80"),
                         ("0", "of 0"), ("MORE", "")]  # fmt: skip
    assert grid.rows[-1][-1].text == "SAME"  # of all cases
    assert "kernel: registers of a thread 32" in render_page(page)


def test_equal_censuses_say_so():
    page = page_of(made_up(), made_up())
    assert page.answer[0] == "No launch and no figure of any kernel has changed."
    assert page.answer[-1] == "Verdicts: 4 SAME."


def test_a_failure_has_a_row_with_its_reason():
    failed = made_up()
    operations = [
        each.model_copy(update={"failure": "no step", "kernels": [], "steps": []})
        for each in failed.variants[0].operations
    ]
    failed.variants[0] = failed.variants[0].model_copy(update={"operations": operations})
    page = page_of(made_up(), failed)
    (grid,) = page.sections[1].blocks
    assert isinstance(grid, Grid)
    assert (grid.rows[0][-1].text, grid.rows[0][-2].text) == ("INVALID", "–")
    assert "no step" in grid.rows[0][-1].small
