"""The checks of pages find nothing on a sound page, and each finds what was broken for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import page_checks
from support.browser import A4, WIDTHS, NoBrowserError, Pages, Scheme, chromium

SOUND = Path(__file__).with_name("sound.html")

pytestmark = pytest.mark.browser

# The check; what is replaced in the sound page, and by what; a fault that is found then.
BROKEN = {
    "an error of the console": (
        *("silent", "<script>", "<script>console.error('it is wrong');"),
        "it is wrong",
    ),
    "an exception": ("silent", "<script>", "<script>nothing.at.all();", "uncaught: nothing"),
    "a picture from elsewhere": (
        *("silent", "<main>", '<main><img alt="" src="https://example.org/a.png">'),
        "asked for https://example.org/a.png",
    ),
    "a script from elsewhere": (
        *("silent", "<script>", "<script src='https://example.org/a.js'></script><script>"),
        "asked for https://example.org/a.js",
    ),
    "a file beside it": (
        *("silent", "<style>", '<link rel="stylesheet" href="own.css"><style>'),
        r"asked for file://.*own\.css",
    ),
    "a request by a script": (
        *("silent", "<script>", "<script>fetch('http://127.0.0.1:9/').catch(() => 0);"),
        r"asked for http://127\.0\.0\.1:9/",
    ),
    "a socket": (
        *("silent", "<script>", "<script>new WebSocket('ws://example.org/');"),
        "asked for ws://example.org/",
    ),
    "a picture far below": (
        "silent",
        "</main>",
        '<p style="height: 20000px"></p><img alt="" loading="lazy" src="http://example.org/b">'
        "</main>",
        "asked for http://example.org/b",
    ),
    "a connection ahead": (
        *("silent", "<style>", '<link rel="preconnect" href="https://example.org"><style>'),
        "hint: .*example.org",
    ),
    "no language": ("structure", ' lang="en"', "", "no lang"),
    "two headings": ("structure", "<main>", "<main><h1>More</h1>", "2 <h1>"),
    "pale text": ("accessible", "--text: #222", "--text: #bbb", "color-contrast"),
    "pale text in what is closed": (
        *("accessible", "<p>of two", '<p style="color: #999; background: #888">of two'),
        "color-contrast",
    ),
    "a field without a label": ("accessible", '<label for="filter">', "<label>", "label"),
    "a chart without a text": (
        *("charts", 'aria-label="one took 10, two took 9, three took 100" ', ""),
        "no figcaption",
    ),
    "a chart without data": ("charts", 'class="data"', "", "no details.data"),
    "a chart whose data are empty": (
        *("charts", "<tr><td>one</td><td>10</td></tr></table></details>", "</table></details>"),
        "has no table",
    ),
    "a picture without a text": ("charts", "</h1>", "</h1><svg></svg>", "a picture without"),
    "no chart": ("charts", 'data-chart="times"', "", "no chart"),
    "a wide part": ("fits", "</h1>", '</h1><p style="width: 2000px">wide</p>', "2008 px wide"),
    "a wide part on paper": (
        *(
            "prints",
            "</h1>",
            '</h1><div style="overflow: auto"><p style="width: 800px">a</p></div>',
        ),
        "elements beyond 718",
    ),
    "closed on paper": ("prints", "details::details-content", "none", "are closed"),
    "rows that are broken on paper": ("prints", "tr, svg", "svg", "may be broken: <tr"),
    "samples that are not drawn": ("samples", '<svg width="200', '<i title="', "nothing is drawn"),
    "samples without a text": ("samples", ' aria-label="9 each"', "", "no text"),
    "samples without a table": ("samples", '<td class="n">9</td>', "", "no table with data"),
    "samples without a scope": ("samples", '<th scope="col">two', "<th>two", "a th has no scope"),
    "samples beyond the page": (
        "samples",
        'width="200"',
        'width="2000" style="max-width: none"',
        "cut off",
    ),
    "no samples": ("samples", 'class="samples"', "", "no case has samples"),
    "pale text in the dark": ("legible", "--text: #222", "--text: #bbb", "color-contrast"),
    "no sorting": (
        "sorts",
        'addEventListener("click"',
        'addEventListener("x"',
        "aria-sort is none",
    ),
    "sorted as texts": ("sorts", ", {numeric: true}", "", "not in order"),
    "sorted one way": ("sorts", "=> sign *", "=>", "not in order"),
    "a figure without its thousands": (
        "sorts",
        "<td>100</td>",
        "<td>1,000 µs</td>",
        "not in order",
    ),
    "two heads that sort": (
        *("sorts", 'for (const each of heads) each.ariaSort = "none";', ""),
        "sorted by time, aria-sort is",
    ),
    "heads without buttons": (
        "sorts",
        '<button type="button">case</button>',
        "case",
        "no button",
    ),
    "heads that Tab passes": (
        *("sorts", '<button type="button">case', '<button type="button" tabindex="-1">case'),
        "Tab does not lead",
    ),
    "no filter": ("filters", 'addEventListener("input"', 'addEventListener("x"', "' is shown"),
    "a filter that leaves nothing": (
        *("filters", "row.hidden = ", "row.hidden = !!wanted || "),
        "' is not shown",
    ),
    "rows that are lost": (
        *("filters", "row.hidden = ", "row.hidden = row.hidden || "),
        "without a filter, 3 rows are lost",
    ),
    "rows without links": ("opens_cases", '<a href="#case-two">two</a>', "two", "without a link"),
    "links to nothing": ("opens_cases", 'id="case-two"', "", "no section of the id case-two"),
    "cases that stay closed": ("opens_cases", "details.open = true", "", "opens no details"),
}


def settings(check: str) -> dict[str, object]:
    return {"media": "print", "width": A4} if check == "prints" else {}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name: str, pages: Pages, tmp_path: Path) -> None:
    check, old, new, fault = BROKEN[name]
    sound = SOUND.read_text(encoding="utf-8")
    assert old in sound
    path = tmp_path / "broken.html"
    path.write_text(sound.replace(old, new, 1), encoding="utf-8")
    with pages.open(path, **settings(check)) as opened:
        found = getattr(page_checks, check)(opened)
    assert any(re.search(fault, each) for each in found), found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("check", sorted({check for check, *_ in BROKEN.values()}))
def test_nothing_is_found_on_a_sound_page(check: str, scheme: Scheme, pages: Pages) -> None:
    with pages.open(SOUND, scheme=scheme, **settings(check)) as opened:
        assert getattr(page_checks, check)(opened) == []
        assert opened.errors == opened.requests == []


def test_colours_are_those_that_the_reader_prefers(pages: Pages, tmp_path: Path) -> None:
    sound = SOUND.read_text(encoding="utf-8")
    path = tmp_path / "pale.html"
    path.write_text(sound.replace("--text: #ddd", "--text: #333"), encoding="utf-8")
    with pages.open(path, scheme="light") as opened:
        assert page_checks.accessible(opened) == []
    with pages.open(path, scheme="dark") as opened:
        assert "color-contrast" in page_checks.accessible(opened)[0]


def test_what_scripts_write_is_missed_without_them(pages: Pages, tmp_path: Path) -> None:
    sound = SOUND.read_text(encoding="utf-8")
    path = tmp_path / "written.html"
    wrote = "document.querySelector('h1').after('written by a script');"
    for text, missing in ((sound, 0), (sound.replace("<script>", f"<script>{wrote}"), 1)):
        path.write_text(text, encoding="utf-8")
        with pages.open(path) as opened, pages.open(path, scripts=False) as plain:
            found = page_checks.readable_without_scripts(opened, plain)
        assert len(found) == missing, found
    path.write_text(
        sound.replace("<script>", "<noscript><style>svg {display: none}</style></noscript><script>")
    )
    with pages.open(path) as opened, pages.open(path, scripts=False) as plain:
        found = page_checks.readable_without_scripts(opened, plain)
    assert found == ["without scripts, 0 charts of 1 are drawn"]


def test_equal_figures_may_stay_as_they_are() -> None:
    in_order = page_checks._in_order
    assert in_order(
        ["1 µs of 3", "1 µs of 2", "2 µs", "none"], ["2 µs", "1 µs of 3", "1 µs of 2", "none"]
    )
    assert in_order(["4 x", "a", "b"], ["b", "a", "4 x"])
    assert not in_order(["1 µs", "none", "2 µs"], ["2 µs", "1 µs", "none"])
    assert not in_order(["a", "b"], ["a", "b"])
    assert not in_order(["10", "9"], ["9", "10"])


@pytest.mark.parametrize("width", WIDTHS)
def test_a_picture_is_as_wide_as_the_window(width: int, pages: Pages, tmp_path: Path) -> None:
    path = tmp_path / "pictures" / "sound.png"
    with pages.open(SOUND, width=width) as opened:
        opened.picture(path)
    assert path.read_bytes()[16:20] == width.to_bytes(4, "big")


def test_a_missing_browser_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoBrowserError, match=r"none of chromium, .* Debian's package chromium"):
        chromium()
    with pytest.raises(NoBrowserError, match="BT_BENCH_CHROMIUM names /no/chromium"):
        chromium("/no/chromium")
