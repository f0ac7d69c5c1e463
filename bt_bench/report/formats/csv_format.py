"""A comparison as CSV, a row per judgement, for spreadsheets and for programs.

As in RFC 4180: CRLF, a heading, cells in double quotes where they need them, and no line breaks in
cells. A text that a spreadsheet would take for a formula gets an apostrophe in front, as OWASP
advises against CSV injection; numbers are left alone.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from io import StringIO

from bt_bench.analysis import Evidence, Judged, Judgement
from bt_bench.report.formats.judged_document import missed_lines
from bt_bench.report.formats.texts import clean

_FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")

Value = str | float | bool | None

COLUMNS: dict[str, Callable[[Judgement], Value]] = {
    "operation": lambda judgement: judgement.operation,
    "case": lambda judgement: judgement.case,
    "metric": lambda judgement: judgement.metric,
    "unit": lambda judgement: judgement.unit,
    "base": lambda judgement: judgement.base,
    "other": lambda judgement: judgement.other,
    "base_value": lambda judgement: judgement.base_value,
    "other_value": lambda judgement: judgement.other_value,
    "ratio": lambda judgement: judgement.ratio,
    "low": lambda judgement: judgement.low,
    "high": lambda judgement: judgement.high,
    "percent": lambda judgement: judgement.percent,
    "verdict": lambda judgement: judgement.verdict.value,
    "cause": lambda judgement: judgement.cause.value,
    "detail": lambda judgement: judgement.detail,
    "advisory": lambda judgement: judgement.advisory,
    "exploratory": lambda judgement: judgement.exploratory,
    "decides": lambda judgement: judgement.decides,
}
"""Columns of every judgement."""

EVIDENCE_COLUMNS: dict[str, Callable[[Evidence], Value]] = {
    "observations": lambda evidence: evidence.observations,
    "estimate": lambda evidence: evidence.estimate,
    "error": lambda evidence: evidence.error,
    "degrees": lambda evidence: evidence.degrees,
    "margin": lambda evidence: evidence.margin.share,
    "margin_binds": lambda evidence: evidence.margin.binds,
    "margin_configured": lambda evidence: evidence.margin.configured,
    "margin_floor": lambda evidence: evidence.margin.floor,
    "systematic_copies": lambda evidence: evidence.systematic.copies,
    "systematic_slowed": lambda evidence: evidence.systematic.slowed,
    "systematic_sped": lambda evidence: evidence.systematic.sped,
    "p_slower": lambda evidence: evidence.p_slower,
    "p_faster": lambda evidence: evidence.p_faster,
    "adjusted_slower": lambda evidence: evidence.adjusted_slower,
    "adjusted_faster": lambda evidence: evidence.adjusted_faster,
    "alpha": lambda evidence: evidence.alpha,
    "tests": lambda evidence: evidence.tests,
    "log_low": lambda evidence: evidence.log_low,
    "log_high": lambda evidence: evidence.log_high,
    "confidence": lambda evidence: evidence.confidence,
    "detectable": lambda evidence: evidence.detectable,
}
"""Columns that are empty where a verdict needed no statistics."""


WARNINGS_COLUMN = "warnings"
"""The last column, the same in all rows: `missed_lines`, then warnings about the comparison."""


def render_csv(judged: Judged) -> str:
    """Return the text of a `.csv` file."""
    warnings = _cell("; ".join([*missed_lines(judged), *judged.warnings]))
    stream = StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow([*COLUMNS, *EVIDENCE_COLUMNS, WARNINGS_COLUMN])
    writer.writerows([*_row(judgement), warnings] for judgement in judged.judgements)
    return stream.getvalue()


def _row(judgement: Judgement) -> list[str]:
    values = [read(judgement) for read in COLUMNS.values()]
    evidence = judgement.evidence
    values += [None if evidence is None else read(evidence) for read in EVIDENCE_COLUMNS.values()]
    return list(map(_cell, values))


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = clean(value)
        return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
    return repr(value)
