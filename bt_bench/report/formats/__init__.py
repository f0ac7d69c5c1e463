"""The output formats of `compare` and `gate`: one per file, each a pure function of the verdicts.

A format prints judgements in the order given, see `arrange`; formats with a limited size put the
worst first themselves.
"""

from __future__ import annotations

from collections.abc import Callable

from bt_bench.analysis import Judged
from bt_bench.report.formats.csv_format import render_csv
from bt_bench.report.formats.explanation import explanation_document
from bt_bench.report.formats.github_format import render_github, step_summary
from bt_bench.report.formats.html_format import render_html_fragment
from bt_bench.report.formats.json_format import render_json
from bt_bench.report.formats.junit_format import render_junit
from bt_bench.report.formats.md_format import render_md
from bt_bench.report.formats.phrases import not_compared_lines
from bt_bench.report.formats.table_format import render_table, verdict_document

__all__ = [
    "FORMATS",
    "explanation_document",
    "not_compared_lines",
    "render_table",
    "step_summary",
    "verdict_document",
]

FORMATS: dict[str, Callable[[Judged], str]] = {
    "table": render_table,
    "md": render_md,
    "json": render_json,
    "csv": render_csv,
    "junit": render_junit,
    "html-fragment": render_html_fragment,
    "github": render_github,
}
"""Formats by name, as in `--format`; each text ends with a newline."""
