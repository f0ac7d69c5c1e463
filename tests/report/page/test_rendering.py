"""Pages are well-formed and self-contained, whatever the names in them."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import scenarios
from support.factories import make_case, make_crash, make_failed_case, make_result, make_workload
from support.pages import ReadPage

from bt_bench.base import Bullets, Cell, Table
from bt_bench.report.page import render_page, run_page
from bt_bench.report.page.parts import (
    Bar,
    BarChart,
    CasePart,
    Grid,
    GridCell,
    GridColumn,
    Interval,
    IntervalChart,
    Mark,
    MarkGroup,
    Page,
    PageSection,
    Segment,
    Tick,
)
from bt_bench.report.page.rendering import MOST_ROWS
from bt_bench.report.run.arranged import arrange
from bt_bench.results import VariantResult
from bt_bench.results.run.nouns import Quantity
from bt_bench.suites.block_tables import operations as ops

RUNS = ("gpu_run", "cpu_run", "partial_run", "failed_run", "trace_run", "hostile_run")
LONG = "x" * 10_000
NASTY = (
    "</script><script>alert(1)</script>",
    "<!-- <img src=x onerror=alert(1)> -->",
    "\"'`><b onclick=x>&amp;&#x202e;",
    "]]></style></title><svg/onload=x>",
    "\u202eevil\u2066\u200f\u061c",
    "nul\x00 bell\x07 esc\x1b[31m del\x7f c1\x9b",
    "{{ page.title }}{% raw %}",
    f"<i>{LONG}",
)
ALPHABET = "<>\"'&/!-[]{}%;=` \u202e\u2066\u200f\x00\x1b\x9b\n\u2028abc"
texts = st.sampled_from(NASTY) | st.text(ALPHABET, min_size=1, max_size=40)


def html_of(results: list[VariantResult]) -> str:
    return render_page(run_page(arrange(results)))


@pytest.mark.parametrize("name", RUNS)
def test_a_page_is_whole_and_refers_to_nothing_else(name):
    html = html_of(getattr(scenarios, name)())
    page = ReadPage(html)
    assert {link for link in page.links if not link.startswith("#")} == set()
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert "default-src 'none'" in html
    assert not re.search(r"@import|url\(", html[: html.index("</style>")])
    assert all(page.labels)
    assert (page.tags.count("h1"), page.tags.count("main")) == (1, 1)


def page_of(name: str) -> Page:
    """A page of every kind of part that has this name wherever a text can be."""
    table = Table((name, "µs"), ((Cell(name, name), Cell("1")),), 1)
    at = Interval(0.1, 0.2, 0.3)
    marks = MarkGroup(name, (Mark(name, 1, at, name, name, inner=at),))
    told = {"name": name, "title": name, "alternative": name, "data": table}
    chart = IntervalChart(**told, groups=(marks,), ticks=(Tick(0.5, name, True),))
    bar = Bar(name, (Segment("host", 0.5, name),), name)
    bars = BarChart(**told, legend=(("host", name),), bars=(bar,))
    cell = GridCell(name, small=name, strip=at)
    grid = Grid(name, name, (GridColumn(name),), ((cell,),), 0.5)
    blocks = (name + " ", Bullets((name,)), table, chart, bars, grid)
    return Page(
        title=name,
        answer=(name + " ",),
        warnings=(name,),
        sections=(PageSection(name + "t", blocks, folded=True),),
        cases=(CasePart("case-0", name, (name + " ",), "", name),),
        arms=(name,),
        footer=(name,),
    )


def test_rows_that_are_not_laid_out_at_once_are_in_the_page():
    rows = tuple((GridCell(f"row {number}", link=f"to-{number}"),) for number in range(2_001))
    grid = Grid("All", "all", (GridColumn("Case"),), rows)
    html = render_page(Page("title", (), sections=(PageSection("", (grid,)),)))
    laid_out, rest = html.split('<noscript id="rest">')
    assert laid_out.count("row ") == MOST_ROWS < 1_000
    assert rest.count("row ") == len(rows) - MOST_ROWS
    assert f'data-left="{len(rows) - MOST_ROWS}"' in laid_out
    assert "noscript" not in render_page(page_of("few"))


@given(texts)
@settings(max_examples=20, deadline=None)
def test_no_text_changes_the_elements_of_a_page(name):
    html = render_page(page_of(name))
    page = ReadPage(html)
    assert (page.tags, page.names) == harmless_elements()
    assert_inert(html)


@cache
def harmless_elements() -> tuple[list[str], set[tuple[str, str]]]:
    page = ReadPage(render_page(page_of("harmless")))
    return page.tags, page.names


def assert_inert(html: str) -> None:
    """Only our own scripts end, and nothing is left that does not print."""
    assert html.lower().count("</script") == html.count("<script")
    odd = {each for each in html if unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp")}
    assert odd <= {"\n"}


@cache
def harmless_elements_of_a_run() -> tuple[list[str], set[tuple[str, str]]]:
    page = ReadPage(html_of(run_named("harmless")))
    return page.tags, page.names


def run_named(name: str) -> list[VariantResult]:
    """A run that has this name wherever a result has a text of its own."""
    samples = {
        quantity: [[100.0 + index] for index in range(12)]
        for quantity in (Quantity.HOST_US, Quantity.GPU_US, Quantity.STEP_US)
    }
    workload = make_workload(name)
    workload = workload.model_copy(
        update={
            "kind": name,
            "parameters": {"requests": name, "tokens": 512},
            "remarks": [name],
        }
    )
    ok = make_case(f"{name}1", ops.STEP, samples, workload=workload, notes=[name])
    failed = make_failed_case(f"{name}2", ops.STEP, name)
    results = [
        make_result(label, [ok, failed], config=name, crashes=[make_crash(name)])
        for label in (f"base{name}", f"other{name}")
    ]
    environment = results[0].environment.model_copy(
        update={"cpu": name, "platform": name, "python": name, "driver": name}
    )
    changes = {
        "environment": environment,
        "tool": results[0].tool.model_copy(update={"command": ["bt-bench", "sweep", name]}),
        "run_id": name,
    }
    return [result.model_copy(update=changes) for result in results]


@pytest.mark.parametrize("name", NASTY)
def test_no_name_in_a_run_changes_the_elements_of_its_page(name):
    html = html_of(run_named(name))
    page = ReadPage(html)
    assert (page.tags, page.names) == harmless_elements_of_a_run()
    assert_inert(html)
