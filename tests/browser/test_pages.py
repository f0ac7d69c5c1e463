"""Pages of all that is committed, as a reader opens them; pictures of them are in build/pages/."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support import page_checks
from support.browser import A4, WIDTHS, Pages
from support.page_checks import Check

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"
PICTURES = ROOT / "build" / "pages"

RUNS = sorted(str(file.parent.relative_to(REPORTS)) for file in REPORTS.rglob("config.yaml"))
# Results against each other; gates that found something and gates that did not; a timeline.
COMPARED = "h100/origin/fused.json.xz h100/origin/one_launch.json.xz"
GATES = (
    "h100/gate-ca9318f/fused-recording.json",
    "h100/functions/gate-rotary_cache",
    "h200/page_indices/gate-slower",
    "h200/page_indices/gate-equal",
)
CENSUS = "static/census.json"
PROFILES = ("h100/profile/mixed", CENSUS)
WITH_TABLES = (*RUNS, COMPARED, *GATES)
ALL = (*WITH_TABLES, *PROFILES)

pytestmark = pytest.mark.browser


@pytest.fixture
def path(request: pytest.FixtureRequest, render: Callable[..., Path]) -> Path:
    """The page of what a test is called with."""
    return render(*(REPORTS / name for name in request.param.split()))


def of(pages: tuple[str, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", pages, indirect=True)


@of(ALL)
def test_it_opens_at_all_widths_light_and_dark(path: Path, pages: Pages) -> None:
    with pages.open(path) as opened:
        for width in WIDTHS:
            opened.page.set_viewport_size({"width": width, "height": 900})
            assert page_checks.fits(opened) == []
            for scheme in ("light", "dark"):
                opened.page.emulate_media(color_scheme=scheme)
                opened.picture(PICTURES / f"{path.stem}-{scheme}-{width}.png")
        assert page_checks.silent(opened) == []


@of(ALL)
def test_it_has_the_parts_that_readers_of_screens_go_by(path: Path, pages: Pages) -> None:
    checks: list[Check] = [page_checks.structure, page_checks.accessible]
    if not path.stem.startswith("static"):  # a census has no times, and so its page no chart
        checks.insert(1, page_checks.charts)
    with pages.open(path) as opened:
        assert {fault for check in checks for fault in check(opened)} == set()
        opened.page.emulate_media(color_scheme="dark")
        assert page_checks.legible(opened) == []


@of(WITH_TABLES)
def test_tables_are_sorted_and_filtered_and_cases_opened_by_keyboard(
    path: Path, pages: Pages
) -> None:
    with pages.open(path) as opened:
        for check in (page_checks.sorts, page_checks.filters, page_checks.opens_cases):
            assert check(opened) == []


@of(RUNS)
def test_samples_are_drawn_and_all_is_printed(path: Path, pages: Pages) -> None:
    with pages.open(path, width=A4, media="print") as opened:
        assert page_checks.samples(opened) == []
        assert page_checks.prints(opened) == []
        assert page_checks.silent(opened) == []


@of(ALL)
def test_it_is_read_without_scripts(path: Path, pages: Pages) -> None:
    with pages.open(path) as opened, pages.open(path, scripts=False) as plain:
        assert page_checks.readable_without_scripts(opened, plain) == []
        assert plain.errors == plain.requests == []


@of((COMPARED, *GATES, *PROFILES))
def test_it_is_printed_whole(path: Path, pages: Pages) -> None:
    with pages.open(path, width=A4, media="print") as opened:
        assert page_checks.prints(opened) == []
