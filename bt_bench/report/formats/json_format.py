"""A comparison as JSON: all of its fields, one judgement per line for readable diffs.

`read_judged` reads the document of a gate back, for merging the gates of shards.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from bt_bench.analysis import WORST_FIRST, Evidence, Judged, Judgement
from bt_bench.base import read_text
from bt_bench.base.errors import UsageError
from bt_bench.results import SuiteInfo, context_of

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
        "unseen": judged.unseen,
        "facts": [*filter(None, [judged.unseen]), *judged.facts],
        "warnings": judged.warnings,
        "failed_self_checks": judged.self_checks,
    }
    members = [f"  {_dumped(name)}: {_dumped(value)}" for name, value in head.items()]
    members.append(_lines("overall", (_all_known(asdict(each)) for each in judged.overall)))
    members.append(_lines("judgements", map(judgement_json, judged.judgements)))
    return "{\n" + ",\n".join(members) + "\n}\n"


def read_judged(path: Path, suite: SuiteInfo | None) -> Judged:
    """Read a file that `render_json` has written.

    Args:
        path: the file.
        suite: the suite of the judged operations.

    Raises:
        UsageError: if it cannot be read, or is no such file of this version.
    """
    text = read_text(path, str(path), "verdicts of a gate", "verdicts.json")
    wanted = {"kind": "judged", "schema_version": JUDGED_SCHEMA_VERSION}
    try:
        fields = from_json(text)
        if not isinstance(fields, dict) or not wanted.items() <= fields.items():
            raise UsageError(
                f"{path}: expected verdicts of schema version {JUDGED_SCHEMA_VERSION}, as "
                "`bt-bench gate` writes them into its folder"
            )
        facts = fields["facts"][1 if fields["unseen"] else 0 :]
        known = {name: fields[name] for name in _READ} | {"facts": facts}
        power, judgements = fields["power"], map(_whole, fields["judgements"])
        known["power"] = power and _or_infinite(power, ("worst_share", "median_share"))
        known["judgements"] = tuple(judgements)
        return TypeAdapter(Judged).validate_python(known, context=context_of(suite))
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        what = str(error).partition("\n")[0]
        raise UsageError(f"{path} is damaged: it does not have the verdicts: {what}") from None


_READ = ("title", "base", "others", "overall", "warnings", "scope", "unseen", "subject")


def _whole(judgement: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a judgement, with infinities where JSON has null for one."""
    evidence = judgement["evidence"]
    if evidence is not None:
        evidence = _or_infinite(evidence, ("log_high", "detectable", "error"))
        evidence |= {"log_low": -math.inf} if evidence["log_low"] is None else {}
    return {**judgement, "evidence": evidence}


def _or_infinite(fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {**fields, **{name: math.inf for name in names if fields[name] is None}}


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
