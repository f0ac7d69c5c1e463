"""A comparison as JSON: all of its fields, one judgement per line for readable diffs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from bt_bench.analysis import WORST_FIRST, Evidence, Judged, Judgement, Overall, Power

JUDGED_SCHEMA_VERSION = 3


def render_json(judged: Judged) -> str:
    """Return one JSON document, with null for absent values.

    Ratios are other to base, margins are shares.
    """
    head = {
        "schema_version": JUDGED_SCHEMA_VERSION,
        "kind": "judged",
        "subject": judged.subject,
        "power": None if judged.power is None else _power(judged.power),
        "title": judged.title,
        "base": judged.base,
        "others": judged.others,
        "counts": _counts(judged.judgements),
        "deciding": _counts(judged.deciding),
        "scope": judged.scope,
        "facts": [*filter(None, [judged.unseen]), *judged.facts],
        "warnings": judged.warnings,
        "failed_self_checks": judged.self_checks,
    }
    members = [f"  {_dumped(name)}: {_dumped(value)}" for name, value in head.items()]
    members.append(_lines("overall", map(_overall, judged.overall)))
    members.append(_lines("judgements", map(judgement_json, judged.judgements)))
    return "{\n" + ",\n".join(members) + "\n}\n"


def _lines(name: str, items: Iterable[Mapping[str, Any]]) -> str:
    lines = [f"    {_dumped(item)}" for item in items]
    inside = "\n" + ",\n".join(lines) + "\n  " if lines else ""
    return f"  {_dumped(name)}: [{inside}]"


def _counts(judgements: Iterable[Judgement]) -> dict[str, int]:
    found = Counter(judgement.verdict for judgement in judgements)
    return {verdict.value: found[verdict] for verdict in WORST_FIRST}


def _overall(overall: Overall) -> dict[str, Any]:
    return _all_known(asdict(overall))


def judgement_json(judgement: Judgement) -> dict[str, Any]:
    """Return a judgement as JSON; a number that JSON cannot hold is null."""
    # By hand, since `asdict` takes most of the time where there are thousands.
    members = {
        "operation": judgement.operation,
        "case": judgement.case,
        "metric": judgement.metric,
        "unit": judgement.unit,
        "base": judgement.base,
        "other": judgement.other,
        "base_value": judgement.base_value,
        "other_value": judgement.other_value,
        "ratio": judgement.ratio,
        "low": judgement.low,
        "high": judgement.high,
        "percent": judgement.percent,
        "verdict": judgement.verdict.value,
        "cause": judgement.cause.value,
        "detail": judgement.detail,
        "advisory": judgement.advisory,
        "exploratory": judgement.exploratory,
        "decides": judgement.decides,
        "evidence": None if judgement.evidence is None else _evidence(judgement.evidence),
    }
    return _all_known(members)


def _power(power: Power) -> dict[str, Any]:
    return _all_known(vars(power) | {"falls_short": power.falls_short})


def _evidence(evidence: Evidence) -> dict[str, Any]:
    margin = evidence.margin
    fields = vars(evidence) | {
        "margin": {
            "share": margin.share,
            "binds": margin.binds,
            "configured": margin.configured,
            "floor": margin.floor,
        },
        "systematic": vars(evidence.systematic),
    }
    return _all_known(fields)


def _all_known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _known(value) for key, value in fields.items()}


def _known(value: object) -> object:
    """Return the value, or `None` for a number that JSON cannot hold."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _dumped(value: object) -> str:
    # In ASCII: JSON leaves some control characters unescaped that terminals obey, and a label from
    # the command line may hold characters that UTF-8 cannot encode.
    return json.dumps(value, allow_nan=False)
