"""The output formats of `bt-bench report`, each a pure function of the evidence."""

from __future__ import annotations

from collections.abc import Callable

from bt_bench.report.evidence import Evidence
from bt_bench.report.formats import FORMATS
from bt_bench.report.markdown import render_document
from bt_bench.report.page import compared_page, render_page, run_page
from bt_bench.report.pull_request import render_draft, render_draft_json
from bt_bench.report.run.document import arms_document


def _html(evidence: Evidence) -> str:
    if evidence.is_one_run:
        run = evidence.runs[0]
        return render_page(run_page(run.arms, run.planned_cases))
    return render_page(compared_page(evidence))


def _markdown(evidence: Evidence) -> str:
    if evidence.is_one_run or evidence.judged is None:
        run = evidence.runs[0]
        return render_document(arms_document(run.arms, run.planned_cases))
    return FORMATS["md"](evidence.judged)


REPORT_FORMATS: dict[str, Callable[[Evidence], str]] = {
    "html": _html,
    "md": _markdown,
    "pr": render_draft,
    "json": render_draft_json,
}
"""Formats by name, as in `--format`; each text ends with a newline."""
