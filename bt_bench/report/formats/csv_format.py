"""A comparison as CSV, a row per judgement, for spreadsheets and for programs.

As in RFC 4180: CRLF, a heading, cells in double quotes where they need them, and no line breaks in
cells. A text that a spreadsheet would take for a formula gets an apostrophe in front, as OWASP
advises against CSV injection; numbers are left alone.
"""

from __future__ import annotations

import csv
from io import StringIO
from operator import attrgetter

from bt_bench.analysis import Judged, Judgement
from bt_bench.report.formats.json_format import FIELDS
from bt_bench.report.formats.judged_document import missed_lines
from bt_bench.report.formats.texts import clean

_FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")

Value = str | float | bool | None

EVIDENCE_COLUMNS = {
    **{name: name for name in ("observations", "estimate", "error", "degrees")},
    "margin": "margin.share",
    **{f"margin_{name}": f"margin.{name}" for name in ("binds", "configured", "floor")},
    **{f"systematic_{name}": f"systematic.{name}" for name in ("copies", "slowed", "sped")},
    **{name: name for name in ("p_slower", "p_faster", "adjusted_slower", "adjusted_faster")},
    **{name: name for name in ("alpha", "tests", "log_low", "log_high")},
    **{name: name for name in ("confidence", "detectable")},
}
"""Columns that are empty where no statistics were needed, each with its place in `Evidence`."""

_read_evidence = attrgetter(*EVIDENCE_COLUMNS.values())

WARNINGS_COLUMN = "warnings"
"""The last column, the same in all rows: `missed_lines`, then warnings about the comparison."""


def render_csv(judged: Judged) -> str:
    """Return the text of a `.csv` file."""
    warnings = _cell("; ".join([*missed_lines(judged), *judged.warnings]))
    stream = StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow([*FIELDS, *EVIDENCE_COLUMNS, WARNINGS_COLUMN])
    rows = (map(_cell, judgement_values(judgement)) for judgement in judged.judgements)
    writer.writerows([*row, warnings] for row in rows)
    return stream.getvalue()


def judgement_values(judgement: Judgement) -> list[Value]:
    """Return the values of a judgement, in the order of `FIELDS` and `EVIDENCE_COLUMNS`."""
    values = [getattr(judgement, name) for name in FIELDS]
    evidence = judgement.evidence
    values += [None] * len(EVIDENCE_COLUMNS) if evidence is None else _read_evidence(evidence)
    # As plain text, also operations and verdicts.
    return [str(value) if isinstance(value, str) else value for value in values]


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = clean(value)
        return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
    return repr(value)
