"""The output formats of `bt-bench report`, each a pure function of the evidence."""

from __future__ import annotations

from collections.abc import Callable

from bt_bench.report.evidence import Evidence
from bt_bench.report.pull_request import render_draft, render_draft_json

REPORT_FORMATS: dict[str, Callable[[Evidence], str]] = {
    "pr": render_draft,
    "json": render_draft_json,
}
"""Formats by name, as in `--format`; each text ends with a newline."""
