"""Pages of committed runs, as a reader opens them; pictures of them are left in build/pages/."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import page_checks
from support.browser import A4, WIDTHS, Opened, Pages, Scheme

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "build" / "pages"
# Steps of one launch, whole batches, models' layouts, functions, and a suite of one's own.
RUNS = (
    "h100/origin",
    "h100/batches",
    "h100/layouts",
    "h100/functions/moe_align",
    "h200/page_indices/sweep",
)

pytestmark = pytest.mark.browser


@pytest.fixture(params=RUNS)
def path(request: pytest.FixtureRequest, render: Callable[[Path], Path]) -> Path:
    """The page of a run."""
    return render(ROOT / "reports" / request.param)


@pytest.fixture
def opened(path: Path, pages: Pages) -> Iterator[Opened]:
    """The page of a run, opened."""
    with pages.open(path) as found:
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_opens_without_errors_requests_or_sideways_scrolling(
    path: Path, width: int, scheme: Scheme, pages: Pages
) -> None:
    with pages.open(path, width=width, scheme=scheme) as opened:
        opened.picture(PICTURES / f"{path.stem}-{scheme}-{width}.png")
        assert page_checks.silent(opened) == []
        assert page_checks.fits(opened) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(path: Path, scheme: Scheme, pages: Pages) -> None:
    with pages.open(path, scheme=scheme) as opened:
        assert page_checks.accessible(opened) == []


def test_it_has_the_parts_that_readers_of_screens_go_by(opened: Opened) -> None:
    assert page_checks.structure(opened) == []


def test_each_chart_has_its_data_and_a_text(opened: Opened) -> None:
    assert page_checks.charts(opened) == []


def test_tables_are_sorted_by_keyboard(opened: Opened) -> None:
    assert page_checks.sorts(opened) == []


def test_tables_are_filtered_by_keyboard(opened: Opened) -> None:
    assert page_checks.filters(opened) == []


def test_a_row_opens_its_case(opened: Opened) -> None:
    assert page_checks.opens_cases(opened) == []


def test_it_is_read_without_scripts(path: Path, pages: Pages) -> None:
    with pages.open(path) as opened, pages.open(path, scripts=False) as plain:
        assert page_checks.readable_without_scripts(opened, plain) == []
        assert plain.errors == plain.requests == []


def test_it_is_printed_whole(path: Path, pages: Pages) -> None:
    with pages.open(path, width=A4, media="print") as opened:
        assert page_checks.prints(opened) == []
