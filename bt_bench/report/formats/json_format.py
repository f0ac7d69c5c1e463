"""A comparison as JSON: all of its fields, one judgement per line for readable diffs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from bt_bench.analysis import WORST_FIRST, Evidence, Judged, Judgement

JUDGED_SCHEMA_VERSION = 3

FIELDS = (
    *("operation", "case", "metric", "unit", "base", "other", "base_value", "other_value"),
    *("ratio", "low", "high", "percent", "verdict", "cause", "detail"),
    *("advisory", "exploratory", "decides"),
)
"""The fields of a judgement in JSON and CSV, in order; the evidence comes after them."""


def render_json(judged: Judged) -> str:
    """Return one JSON document, with null for absent values.

    Ratios are other to base, margins are shares.
    """
    power = judged.power
    head = {
        "schema_version": JUDGED_SCHEMA_VERSION,
        "kind": "judged",
        "subject": judged.subject,
        "power": power and _all_known(vars(power) | {"falls_short": power.falls_short}),
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
    members.append(_lines("overall", (_all_known(asdict(each)) for each in judged.overall)))
    members.append(_lines("judgements", map(judgement_json, judged.judgements)))
    return "{\n" + ",\n".join(members) + "\n}\n"


def _lines(name: str, items: Iterable[Mapping[str, Any]]) -> str:
    lines = [f"    {_dumped(item)}" for item in items]
    inside = "\n" + ",\n".join(lines) + "\n  " if lines else ""
    return f"  {_dumped(name)}: [{inside}]"


def _counts(judgements: Iterable[Judgement]) -> dict[str, int]:
    found = Counter(judgement.verdict for judgement in judgements)
    return {verdict.value: found[verdict] for verdict in WORST_FIRST}


def judgement_json(judgement: Judgement) -> dict[str, Any]:
    """Return a judgement as JSON; a number that JSON cannot hold is null."""
    # By name, since `asdict` takes most of the time where there are thousands.
    members = {name: getattr(judgement, name) for name in FIELDS}
    evidence = judgement.evidence
    members["evidence"] = None if evidence is None else _evidence(evidence)
    return _all_known(members)


def _evidence(evidence: Evidence) -> dict[str, Any]:
    margin = evidence.margin
    shown = {name: getattr(margin, name) for name in ("share", "binds", "configured", "floor")}
    fields = vars(evidence) | {"margin": shown, "systematic": vars(evidence.systematic)}
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
