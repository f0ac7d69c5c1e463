"""Documents, tables and formats, made from results and verdicts."""

from __future__ import annotations

from bt_bench.base import ABSENT, Bullets, Cell, Document, Section, Table
from bt_bench.report.calibration import calibration_document
from bt_bench.report.console import print_document
from bt_bench.report.formats import (
    FORMATS,
    explanation_document,
    not_compared_lines,
    render_table,
    step_summary,
    verdict_document,
)
from bt_bench.report.markdown import render_document
from bt_bench.report.page import render_page, run_page
from bt_bench.report.run.arranged import arrange
from bt_bench.report.run.brief import brief_document
from bt_bench.report.run.document import arms_document
from bt_bench.report.run.rendering import print_run, render_comparison, render_run
from bt_bench.report.run.run_json import run_json
from bt_bench.report.workload import (
    traffic_json,
    traffic_section,
    workload_document,
    workload_json,
)
