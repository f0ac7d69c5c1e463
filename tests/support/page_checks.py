"""Looks for faults of a page of results: each check returns the faults, a line each.

A check that finds nothing to look at has found a fault: a page without charts has none that lack a
text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from support.browser import Opened

Check = Callable[[Opened], list[str]]
_MOST_TABLES = 3  # that are sorted: a page may have one per case
_MOST_CASES = 2  # that axe looks into


def silent(opened: Opened) -> list[str]:
    """Nothing went wrong, and nothing was asked for, at once or when a reader scrolled down."""
    opened.look("() => scrollTo(0, document.documentElement.scrollHeight)")
    opened.page.wait_for_load_state("networkidle")
    hints = opened.look(
        """() => [...document.querySelectorAll(
            "link[rel~=preconnect], link[rel~=dns-prefetch], link[rel~=prefetch]"
        )].map(link => `hint: ${link.outerHTML}`)"""
    )
    return [*opened.errors, *(f"asked for {address}" for address in opened.requests), *hints]


def structure(opened: Opened) -> list[str]:
    """The page has a language, a title, one main part and one heading of the first level."""
    return opened.look(
        """() => {
            const faults = [];
            if (!document.documentElement.lang) faults.push("<html> has no lang");
            if (!document.title.trim()) faults.push("there is no title");
            for (const name of ["h1", "main"]) {
                const count = document.querySelectorAll(name).length;
                if (count !== 1) faults.push(`there are ${count} <${name}>, not one`);
            }
            return faults;
        }"""
    )


def accessible(opened: Opened) -> list[str]:
    """axe-core finds no serious violation, not even in parts that are closed at first."""
    return _axe(opened, {})


def legible(opened: Opened) -> list[str]:
    """axe-core finds enough contrast, which alone depends on the colours that a reader prefers."""
    return _axe(opened, {"runOnly": ["color-contrast"]})


# Opens all details, but of so many cases at most, and lets so many of these draw their samples:
# scripts alone draw them, and drawing takes a second.
_OPEN_ALL = """([cases, drawn]) => {
    for (const each of [...document.querySelectorAll(".samples")].slice(drawn))
        each.dataset.drawn = "not here";
    const closed = new Set([...document.querySelectorAll(".case")].slice(cases));
    for (const each of document.querySelectorAll("details"))
        each.open = !closed.has(each.closest(".case"));
}"""
_EVERY = 1_000_000


def _axe(opened: Opened, options: dict[str, Any]) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    # The parts on cases are made alike, and axe would take minutes for those of all.
    opened.look(_OPEN_ALL, [_MOST_CASES, 1])
    _await_samples(opened)
    found = Axe().run(opened.page, options={**options, "resultTypes": ["violations"]}).response
    return [
        f"{violation['id']} ({violation['impact']}): {violation['help']}: {node['html'][:200]}"
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"][:3]
    ]


def _await_samples(opened: Opened) -> None:
    """Wait until the samples of the case that was opened first are drawn."""
    drawing = "details[open] .samples:not([data-drawn=whole]):not([data-drawn='not here'])"
    opened.page.locator(drawing).first.wait_for(state="detached")


def samples(opened: Opened) -> list[str]:
    """A case that is opened draws its samples, each chart with a text, and beside them a table."""
    case = opened.page.locator(".case:has(.samples) > details > summary").first
    if not case.count():
        return ["no case has samples"]
    case.press("Enter")
    _await_samples(opened)
    opened.page.locator("details[open] .samples details.data > summary").evaluate_all(
        "all => all.forEach(each => each.click())"
    )
    return opened.look(
        """async () => {
            await new Promise(requestAnimationFrame);
            const faults = [];
            const figures = [...document.querySelectorAll("details[open] .samples figure")];
            if (!figures.length) faults.push("no samples are drawn");
            for (const figure of figures) {
                const name = `samples ${figure.dataset.chart}`;
                const charts = [...figure.querySelectorAll("[role=img]")];
                if (!charts.length) faults.push(`${name}: no chart`);
                for (const chart of charts) {
                    const box = chart.querySelector("svg")?.getBoundingClientRect();
                    if (!chart.ariaLabel?.trim()) faults.push(`${name}: no text`);
                    if (!(box?.height > 100)) faults.push(`${name}: nothing is drawn`);
                    if (!(box?.right <= document.documentElement.clientWidth))
                        faults.push(`${name}: cut off at the right`);
                }
                if (!figure.querySelector("details.data[open] table td.n"))
                    faults.push(`${name}: its details.data has no table with data`);
                if (figure.querySelector("th:not([scope])"))
                    faults.push(`${name}: a th has no scope`);
            }
            return faults;
        }"""
    )


def charts(opened: Opened) -> list[str]:
    """Each chart has a name, a text instead of it, and a table of its data beside it."""
    return opened.look(
        """() => {
            const faults = [];
            const all = [...document.querySelectorAll("[data-chart]")];
            if (!all.length) faults.push("there is no chart");
            for (const chart of all) {
                const name = `chart ${chart.dataset.chart || "without a name"}`;
                if (!chart.dataset.chart) faults.push(`${name}: data-chart is empty`);
                const text = chart.matches("figure")
                    ? chart.querySelector("figcaption")?.textContent
                    : chart.matches("svg[role=img]") && chart.getAttribute("aria-label");
                if (!text?.trim()) faults.push(`${name}: no figcaption or aria-label`);
                const beside = "details.data";
                const data = chart.querySelector(beside)
                    || (chart.nextElementSibling?.matches(beside) && chart.nextElementSibling);
                if (!data) faults.push(`${name}: no details.data beside it`);
                else if (!data.querySelector("table td"))
                    faults.push(`${name}: its details.data has no table with data`);
            }
            for (const svg of document.querySelectorAll("svg")) {
                if (svg.closest("[data-chart], [aria-hidden=true]")) continue;
                if (svg.parentElement.closest("svg")) continue;
                if (svg.getAttribute("role") !== "img" || !svg.getAttribute("aria-label")?.trim())
                    faults.push(`a picture without a text: ${svg.outerHTML.slice(0, 200)}`);
            }
            return faults;
        }"""
    )


def fits(opened: Opened) -> list[str]:
    """A reader scrolls down, never sideways; a wide table may, within a part of its own."""
    return opened.look(
        """() => {
            const {scrollWidth, clientWidth} = document.documentElement;
            return scrollWidth <= clientWidth ? [] : [`${scrollWidth} px wide on ${clientWidth}`];
        }"""
    )


def prints(opened: Opened) -> list[str]:
    """On paper nothing is cut off, rows and charts are whole, and all but tables of data is open.

    A chart has the same figures, and a table of each would be many pages. Those that a reader has
    opened are printed.
    """
    return opened.look(
        """() => {
            window.dispatchEvent(new Event("beforeprint"));
            const faults = [];
            const closed = [...document.querySelectorAll("main details:not(.data) > :not(summary)")]
                .filter(part => part.checkVisibility !== undefined && !part.checkVisibility());
            if (closed.length) {
                const first = closed[0].closest("details").outerHTML.slice(0, 200);
                faults.push(`${closed.length} parts of details are closed: ${first}`);
            }
            const broken = [...document.querySelectorAll("main :is(tr, svg:not(svg svg))")]
                .filter(part => getComputedStyle(part).breakInside !== "avoid");
            if (broken.length)
                faults.push(`${broken.length} may be broken: ${broken[0].outerHTML.slice(0, 200)}`);
            const width = document.documentElement.clientWidth;
            const outside = [...document.querySelectorAll("main *:not(svg *)")].filter(
                part => part.checkVisibility() && part.getBoundingClientRect().right > width + 1
            );
            if (outside.length) {
                const [first] = outside;
                const right = Math.round(first.getBoundingClientRect().right);
                faults.push(`${outside.length} elements beyond ${width} px, the first one ends at `
                    + `${right}: ${first.outerHTML.slice(0, 200)}`);
            }
            return faults;
        }"""
    )


_TEXT = """() => document.querySelector("main").innerText"""
_PICTURES = """() => [...document.querySelectorAll("[data-chart]")]
    .filter(each => each.checkVisibility() && each.getBoundingClientRect().height > 0).length"""


def readable_without_scripts(opened: Opened, plain: Opened) -> list[str]:
    """All that is read and seen with scripts is there without them, too.

    Args:
        opened: the page.
        plain: the same page, opened without scripts.
    """
    for each in (opened, plain):
        each.look(_OPEN_ALL, [_EVERY, 0])
    here = set(plain.look(_TEXT).split())
    # What only scripts can do needs no label without them.
    controls = opened.look(
        """() => [...document.querySelectorAll("main :is(button, label, output, [role=status])")]
            .map(each => each.innerText).join(" ")"""
    )
    missing = [word for word in opened.look(_TEXT).split() if word not in here]
    missing = [word for word in missing if word not in controls.split()]
    faults = [f"without scripts, {len(missing)} words are missing: {missing[:10]}"] * bool(missing)
    drawn, seen = opened.look(_PICTURES), plain.look(_PICTURES)
    if seen < drawn:
        faults.append(f"without scripts, {seen} charts of {drawn} are drawn")
    return faults


# Tables

# The values of a column as the page shows them, without those that say that there is none: these
# stay last.
_COLUMN = """([table, column]) => [
    ...document.querySelectorAll("table.sortable")[table].tBodies[0].rows
].filter(row => !row.hidden).map(row => row.cells[column])
    .map(cell => (cell?.dataset.sort ?? cell?.innerText ?? "").trim())
    .filter(text => !["", "–", "—", "-", "…"].includes(text))"""
_STATES = """table => [
    ...document.querySelectorAll("table.sortable")[table].querySelectorAll("th[aria-sort]")
].map(head => head.ariaSort)"""


def sorts(opened: Opened) -> list[str]:
    """Tab leads to the heads of each table, Enter sorts by one, and once more the other way."""
    tables = opened.page.locator("table.sortable")
    if not tables.count():
        return ["there is no table.sortable"]
    return [
        f"table {table}: {fault}"
        for table in range(min(tables.count(), _MOST_TABLES))
        for fault in _sorts(opened, table)
    ]


def _sorts(opened: Opened, table: int) -> list[str]:
    heads = opened.page.locator("table.sortable").nth(table).locator("th[aria-sort]")
    if not heads.count():
        return ["no th has aria-sort"]
    first = heads.first.locator("button")
    if not first.count():
        return ["the first head has no button"]
    if not _tab_to(opened, f"table.sortable >> nth={table} >> th[aria-sort] button >> nth=0"):
        return ["Tab does not lead to its first head"]
    faults = []
    for number in range(heads.count()):
        name = heads.nth(number).inner_text().strip()
        column = heads.nth(number).evaluate("head => head.cellIndex")
        orders = []
        for _ in range(2):
            opened.page.keyboard.press("Enter")
            states = opened.look(_STATES, table)
            orders.append((states[number], opened.look(_COLUMN, [table, column])))
            if any(state != "none" for state in states[:number] + states[number + 1 :]):
                faults.append(f"sorted by {name}, aria-sort is {states}")
        (one, values), (other, reverse) = orders
        if {one, other} != {"ascending", "descending"}:
            faults.append(f"{name}: aria-sort is {one}, then {other}")
        up, down = (values, reverse) if one == "ascending" else (reverse, values)
        if not _in_order(up, down):
            faults.append(f"{name}: not in order: {up[:5]} …, {down[:5]} …")
        opened.page.keyboard.press("Tab")
    return faults


def _in_order(up: list[str], down: list[str]) -> bool:
    """Tell whether a column was in order, and then in the opposite one.

    Figures go by the number that they begin with, and cells without one come last both times. The
    order of texts is the page's own.
    """
    if down == up[::-1] and not all(map(_number, up)):
        return True
    rising, falling = ([_number(text) for text in column] for column in (up, down))
    numbers = [float(each[0].replace(",", "")) for each in rising if each]
    falling_numbers = [float(each[0].replace(",", "")) for each in falling if each]
    return (
        bool(numbers)
        and all(rising[: len(numbers)])
        and all(falling[: len(numbers)])
        and numbers == sorted(numbers)
        and falling_numbers == numbers[::-1]
    )


def _number(text: str) -> re.Match[str] | None:
    return re.match(r"-?[\d,]*\.?\d+", text.replace("−", "-"))


def _tab_to(opened: Opened, selector: str) -> bool:
    """Press Tab from the top of the page until an element has the focus."""
    target = opened.page.locator(selector)
    opened.look("() => { document.activeElement.blur(); getSelection().removeAllRanges() }")
    most = opened.page.locator("a, button, input, select, textarea, summary, [tabindex]").count()
    for _ in range(most + 1):
        opened.page.keyboard.press("Tab")
        if target.evaluate("each => each === document.activeElement"):
            return True
    return False


def filters(opened: Opened) -> list[str]:
    """Text in the field "Filter" leaves the rows that have it; without text all are back."""
    field = opened.page.locator("input#filter")
    if field.count() != 1:
        return [f"there are {field.count()} input#filter, not one"]
    faults = []
    if not opened.page.get_by_label("Filter", exact=True).count():
        faults.append("nothing is labelled Filter")
    if not _tab_to(opened, "input#filter"):
        return [*faults, "Tab does not lead to input#filter"]
    rows = _shown(opened)
    if not rows:  # one is enough, as the table of a gate on one case has
        return [*faults, "the first table.sortable has no row"]
    wanted = opened.look(
        """() => [...document.querySelector("table.sortable").tBodies[0].rows].at(-1)
            .cells[0].innerText.trim()"""
    )
    for text in (wanted, wanted.upper(), "no row has this text"):
        field.fill(text)
        shown = _shown(opened)
        lacking = [row for row in rows if text.lower() in row.lower() and row not in shown]
        others = [row for row in shown if text.lower() not in row.lower()]
        faults += [f"filtered by {text!r}, {row[:80]!r} is not shown" for row in lacking[:1]]
        faults += [f"filtered by {text!r}, {row[:80]!r} is shown" for row in others[:1]]
    field.fill("")
    if lost := len(rows) - len(_shown(opened)):
        faults.append(f"without a filter, {lost} rows are lost")
    return faults


def _shown(opened: Opened) -> list[str]:
    """Return the texts of the first table's rows, without those that are hidden."""
    return opened.look(
        """() => [...document.querySelector("table.sortable").tBodies[0].rows]
            .filter(row => !row.hidden).map(row => row.innerText || row.textContent)"""
    )


def opens_cases(opened: Opened) -> list[str]:
    """Each row leads to its case, and following the link opens it."""
    faults = opened.look(
        """() => [...document.querySelector("table.sortable").tBodies[0].rows].flatMap(row => {
            const link = row.querySelector("a[href^='#case-']");
            if (!link) return [`a row without a link to its case: ${row.innerText.slice(0, 80)}`];
            const id = decodeURIComponent(link.hash.slice(1));
            const found = document.getElementById(id);
            if (!found?.matches("section")) return [`there is no section of the id ${id}`];
            return found.querySelector("details") ? [] : [`section ${id} has no details`];
        }).slice(0, 5)"""
    )
    if faults:
        return faults
    link = opened.page.locator("table.sortable >> nth=0 >> tbody a[href^='#case-'] >> nth=-1")
    link.press("Enter")
    opened.page.wait_for_timeout(100)  # a script that opens it may do so after the event
    return opened.look(
        """() => {
            const {open} = document.querySelector(":target details") ?? {};
            return open ? [] : [`following ${location.hash} opens no details`];
        }"""
    )
