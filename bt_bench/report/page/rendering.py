"""A page as one self-contained HTML file."""

from __future__ import annotations

import base64
import json
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from bt_bench.base import Bullets, Heading, Table, numbered_notes, one_line
from bt_bench.report.page.drawing import line_drawing
from bt_bench.report.page.parts import BarChart, Grid, IntervalChart, LineChart, Page, Picture

_ASSETS = files("bt_bench.report.page") / "assets"
MOST_ROWS = 300
"""Rows of the large table that are laid out at once: browsers take seconds for thousands."""

_LONGEST = 160  # characters of a name; longer ones are cut, except in the details of a case


def render_page(page: Page) -> str:
    """Return the page as HTML5 in UTF-8, without any reference to another file.

    All texts are escaped, and characters that do not print, such as those that reverse the
    direction of writing, are left out.
    """
    script = base64.b64encode((_ASSETS / "vega.js.gz").read_bytes()).decode()
    has_samples = any(case.samples for case in page.cases)
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            style=_asset("page.css"),
            script=_asset("page.js"),
            charts=Markup(script) if has_samples else "",
            specs=_json(json.loads(_asset("specs.json"))),
        )
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bt_bench.report.page", "assets"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.globals["most_rows"] = MOST_ROWS
    environment.filters["short"] = _short
    environment.filters["percent"] = _percent
    environment.filters["kind"] = _kind
    environment.filters["drawn"] = line_drawing
    environment.filters["noted"] = _noted
    environment.filters["tone"] = lambda tone: tone.name.lower() if tone else ""
    return environment


def _asset(name: str) -> Markup:
    """Return a file of this package as trusted markup."""
    return Markup((_ASSETS / name).read_text(encoding="utf-8"))


def _json(value: Any) -> Markup:
    """Return JSON that can stand in a script: nothing in it ends the element."""
    return Markup(json.dumps(value).replace("<", "\\u003c"))


def _printable(value: Any) -> Any:
    """Return a text without characters that do not print; HTML itself joins white space."""
    if isinstance(value, str) and not isinstance(value, Markup) and not value.isprintable():
        return one_line(value)
    return value


def _short(text: str) -> str:
    cleaned = text if text.isprintable() else one_line(text)
    return cleaned if len(cleaned) <= _LONGEST else f"{cleaned[: _LONGEST - 1]}…"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


_KINDS = {
    str: "text",
    Bullets: "bullets",
    Table: "table",
    IntervalChart: "intervals",
    BarChart: "bars",
    LineChart: "lines",
    Picture: "picture",
    Grid: "grid",
}


def _kind(block: object) -> str:
    return _KINDS[type(block)]


def _noted(table: Table) -> dict[str, Any]:
    """Return the rows of a table as texts with tones, and its notes."""
    texts, notes = numbered_notes(table)
    rows = []
    for row, cells in zip(table.rows, texts, strict=True):
        heading = isinstance(row, Heading)
        tones = [None] * len(cells) if isinstance(row, Heading) else [cell.tone for cell in row]
        rows.append({"heading": heading, "cells": list(zip(cells, tones, strict=True))})
    return {"rows": rows, "notes": notes}
