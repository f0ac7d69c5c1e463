"""The draft of a pull request for programs: the findings, and the parts that are blank."""

from __future__ import annotations

import json
from dataclasses import asdict

from bt_bench.report.evidence import Evidence
from bt_bench.report.formats.json_format import judgement_json
from bt_bench.report.pull_request.blanks import BLANKS
from bt_bench.report.pull_request.findings import Row, findings_of

DRAFT_SCHEMA_VERSION = 1


def render_draft_json(evidence: Evidence) -> str:
    """Return one JSON document, with null for absent values; speed-ups are base over other.

    Args:
        evidence: the runs and their comparison.
    """
    findings = findings_of(evidence)
    results = [arm.result for run in evidence.runs for arm in run.arms.all]
    document = {
        "schema_version": DRAFT_SCHEMA_VERSION,
        "kind": "draft",
        "run_ids": [*dict.fromkeys(result.run_id for result in results)],
        "complete": not any(run.is_partial for run in evidence.runs),
        "device": "cpu" if evidence.on_cpu else "cuda",
        "machine_made": {
            "source": findings.source,
            "claims": findings.claims,
            "limits": findings.limits,
            "rows": [_row_json(row) for row in findings.rows],
            "launches": findings.launches,
            "certainty": findings.certainty,
            "method": findings.method,
            "machine": findings.machine,
            "variants": findings.sides,
            "commands": findings.commands,
            "source_sha256": dict(findings.digests),
            "verdicts": [judgement_json(each) for each in findings.decided],
        },
        "blanks": [asdict(blank) for blank in BLANKS],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _row_json(row: Row) -> dict[str, object]:
    return {
        "operation": row.operation,
        "base": row.base,
        "other": row.other,
        "metric": row.metric,
        "cases": row.cases,
        "median_speed_up": row.median,
        "worst": None if row.worst is None else judgement_json(row.worst),
    }
