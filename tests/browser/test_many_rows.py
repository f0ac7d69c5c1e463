"""A table of thousands of rows, of which a browser lays out some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import Opened, Pages

from bt_bench.report.page.parts import Grid, GridCell, GridColumn, Page, PageSection
from bt_bench.report.page.rendering import MOST_ROWS, render_page

COUNT = 5 * MOST_ROWS // 2
SHOWN = "() => [...document.querySelectorAll('#grid tbody tr')].map(row => row.cells[1].innerText)"

pytestmark = pytest.mark.browser


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A page with a table whose numbers fall."""
    numbers = range(COUNT, 0, -1)
    rows = tuple((GridCell(f"case {number},"), GridCell(str(number))) for number in numbers)
    columns = GridColumn("Case"), GridColumn("Number", numeric=True)
    page = Page("title", (), sections=(PageSection("", (Grid("All", "all", columns, rows),)),))
    path = tmp_path / "page.html"
    path.write_text(render_page(page), encoding="utf-8")
    return path


@pytest.fixture
def opened(path: Path, pages: Pages) -> Iterator[Opened]:
    """The page, opened."""
    with pages.open(path) as found:
        yield found


def test_more_rows_are_shown_on_request(opened: Opened) -> None:
    more = opened.page.locator("#more")
    counts = []
    while more.is_visible():
        counts.append((len(opened.look(SHOWN)), more.inner_text()))
        more.press("Enter")
    half = MOST_ROWS // 2
    assert counts == [
        (MOST_ROWS, f"Show {MOST_ROWS} more rows of {COUNT - MOST_ROWS}"),
        (2 * MOST_ROWS, f"Show {half} more rows of {half}"),
    ]
    assert opened.look(SHOWN) == [str(number) for number in range(COUNT, 0, -1)]


def test_all_rows_are_sorted_and_filtered(opened: Opened) -> None:
    opened.page.locator("#grid th:nth-child(2) button").press("Enter")
    assert opened.look(SHOWN) == [str(number) for number in range(1, MOST_ROWS + 1)]
    opened.page.locator("#filter").fill(f"case {COUNT},")
    assert opened.look(SHOWN) == [str(COUNT)]
    assert opened.page.locator("#shown").inner_text() == f"1 of {COUNT} rows"
    assert not opened.page.locator("#more").is_visible()
    opened.page.locator("#filter").fill("")
    assert len(opened.look(SHOWN)) == MOST_ROWS


def test_all_rows_are_printed_and_read_without_scripts(path: Path, pages: Pages) -> None:
    with pages.open(path) as opened:
        opened.page.locator("#more").press("Enter")
        opened.look("() => { window.dispatchEvent(new Event('beforeprint')) }")
        assert len(opened.look(SHOWN)) == COUNT
        opened.look("() => { window.dispatchEvent(new Event('afterprint')) }")
        assert len(opened.look(SHOWN)) == 2 * MOST_ROWS  # as many as before
    with pages.open(path, scripts=False) as plain:
        assert {f"case {number}," for number in range(1, COUNT + 1)} <= {
            text.strip() for text in plain.page.locator("td:first-child").all_inner_texts()
        }
