"""Turns entries into verdicts: margins, one family of tests, and the overall outcome."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bt_bench.analysis.compare.comparability import Labelled, crash_warnings, refuse_differences
from bt_bench.analysis.compare.entries import (
    MOST_NAMED,
    WHOLE_CASE,
    Entry,
    Matchup,
    Pairing,
    metrics_in_order,
)
from bt_bench.analysis.compare.estimating import Refusal, answer, offset_of
from bt_bench.analysis.compare.facts import (
    PARTS,
    facts_of,
    overall_ratios,
    partial_warnings,
    percent,
)
from bt_bench.analysis.deciding import (
    SPREAD_FACTOR,
    WHY_NOT_TESTED,
    Contest,
    Decision,
    Rules,
    compared_nothing,
    decide,
    without_new_paths,
)
from bt_bench.analysis.statistics.estimates import LARGEST_LOG, Estimate, ratio_of
from bt_bench.analysis.verdicts import Cause, Evidence, Judged, Judgement, Margin, Verdict
from bt_bench.errors import UsageError
from bt_bench.results import format_number, select

MAX_SPREAD = 0.25
"""If unchanged code would need a wider margin than this, changed code cannot be judged."""


@dataclass(frozen=True)
class Criteria:
    """What is compared, and how strictly.

    Args:
        rules: margins, alpha, and the correction for many tests.
        metrics: patterns of metric names; without any, all are compared.
        margins: by name, the margins of cases that set their own, as shares.
        ignore_device: accept another device or other versions of torch, CUDA or Triton.
        ignore_plan: accept another measurement plan.
        allow_partial: accept results of runs that did not finish.
    """

    rules: Rules = field(default_factory=Rules)
    metrics: Sequence[str] = ()
    margins: Mapping[str, float] = field(default_factory=dict)
    ignore_device: bool = False
    ignore_plan: bool = False
    allow_partial: bool = False


def judge(
    matchups: Sequence[Matchup],
    criteria: Criteria = Criteria(),
    *,
    base: str | None = None,
    others: Sequence[str] | None = None,
) -> Judged:
    """Judges all metrics of all cases of all matchups, as one family of tests.

    Args:
        matchups: what is compared with what, at least one.
        criteria: how.
        base: label for what all are compared with; default: that of the first matchup's base.
        others: labels for the others; default: those of the matchups.

    Raises:
        NotComparableError: if sides are partial or differ in a way that is not allowed.
        UsageError: for one variant of one run twice, and for a pattern that matches no metric.
    """
    warnings = [
        *partial_warnings(matchups, allow_partial=criteria.allow_partial),
        *(warning for each in matchups for warning in _comparable(each, criteria)),
    ]
    pairings = [Pairing(each) for each in matchups]
    entries = _in_order([entry for each in pairings for entry in each.entries()])
    not_paired = [fact for each in pairings for fact in each.facts()]
    all_entries, entries = entries, _selected(entries, criteria.metrics)
    not_judged = list(_not_judged(all_entries, entries))
    _estimate_all(entries)
    judgements, left_out = without_new_paths(_judge_all(entries, criteria))
    base = base or matchups[0].base.label
    others = others or [each.other.label for each in matchups]
    return Judged(
        title=f"{', '.join(others)} against {base}",
        base=base,
        others=tuple(others),
        judgements=tuple(judgements),
        overall=tuple(overall_ratios(judgements)),
        facts=(
            *facts_of(matchups, criteria.rules, criteria.metrics, judgements),
            *not_paired,
            *left_out,
            *not_judged,
        ),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def not_compared(judged: Judged, wholes: Mapping[str, str]) -> dict[str, list[Judgement]]:
    """Sides of which nothing was compared, with the reasons; such a comparison must never pass.

    Args:
        judged: the comparison.
        wholes: by label of a side, what it is a part of; see `Matched.wholes`.
    """
    found: dict[str, list[Judgement]] = {whole: [] for whole in wholes.values()}
    for judgement in judged.judgements:
        if judgement.other in wholes:
            found[wholes[judgement.other]].append(judgement)
    return {
        whole: judgements for whole, judgements in found.items() if compared_nothing(judgements)
    }


def _comparable(matchup: Matchup, criteria: Criteria) -> Iterator[str]:
    """Yields warnings; raises if the two must not be compared."""
    if matchup.base.absent or matchup.other.absent:
        return  # nothing to compare, and nothing that could differ
    base, other = (
        Labelled(side.label, side.result.header) for side in (matchup.base, matchup.other)
    )
    if matchup.one_run and base.result.variant.name == other.result.variant.name:
        raise UsageError(
            f"{base.label} and {other.label} are the same result: variant "
            f"{base.result.variant.name!r} of run {base.result.run_id!r}; expected two variants "
            "of a run, or results of two runs"
        )
    for side in (base, other):
        yield from crash_warnings(side)
    yield from refuse_differences(
        base, other, ignore_device=criteria.ignore_device, ignore_plan=criteria.ignore_plan
    )


def _in_order(entries: Sequence[Entry]) -> list[Entry]:
    """Sorts entries by case, in the order of the cases, so all sides of a case are together."""
    places: dict[tuple[str, str], int] = {}
    for entry in entries:
        places.setdefault((entry.operation, entry.case), len(places))
    return sorted(entries, key=lambda entry: places[entry.operation, entry.case])


def _selected(entries: list[Entry], patterns: Sequence[str]) -> list[Entry]:
    """Entries of the requested metrics; entries on whole cases are always included."""
    found = {entry.metric.name: entry.metric for entry in entries}
    found.pop(WHOLE_CASE.name, None)
    if not patterns:
        return [entry for entry in entries if _quantity(entry) not in PARTS]
    if not found:
        return entries
    names = [metric.name for metric in metrics_in_order(found)]
    chosen = {WHOLE_CASE.name, *select(names, list(patterns))}
    return [entry for entry in entries if entry.metric.name in chosen]


def _not_judged(entries: Sequence[Entry], selected: Sequence[Entry]) -> Iterator[str]:
    """Facts about cases of which no metric was requested, so that none disappears silently."""

    def places(some: Sequence[Entry]) -> dict[tuple[str, str, str], Entry]:
        return {(each.matchup.other.label, each.operation, each.case): each for each in some}

    left = places(selected)
    lost: dict[str, list[str]] = {}
    for place, entry in places(entries).items():
        if place not in left:
            lost.setdefault(place[0], []).append(f"{entry.operation.value}/{entry.case}")
    for label, keys in lost.items():
        more = len(keys) - MOST_NAMED
        yield (
            f"Nothing of {label} is judged in {', '.join(keys[:MOST_NAMED])}"
            f"{f' and {more} more' if more > 0 else ''}: none of its metrics there was asked for."
        )


def _quantity(entry: Entry) -> str | None:
    return None if entry.metric.series is None else entry.metric.series.quantity.value


def _estimate_all(entries: Sequence[Entry]) -> None:
    """Answers all questions, those on one metric together."""
    asked: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.question is not None:
            asked.setdefault(entry.metric.name, []).append(entry)
    for group in asked.values():
        questions = [entry.question for entry in group if entry.question is not None]
        for entry, found in zip(group, answer(group[0].metric, questions), strict=True):
            entry.base_value, entry.other_value = found.base_value, found.other_value
            entry.outcome = found.outcome


def _judge_all(entries: Sequence[Entry], criteria: Criteria) -> list[Judgement]:
    contests: list[Contest] = []
    refusals: list[Refusal | None] = []
    for entry in entries:
        outcome = entry.outcome
        if isinstance(outcome, Estimate):
            margin = _margin(entry, criteria)
            refusal = _moved(entry, margin)
            if refusal is None:
                contests.append(Contest(outcome, margin))
            refusals.append(refusal)
        else:
            refusals.append(outcome)
    decisions = iter(decide(contests, criteria.rules.correction, criteria.rules.alpha))
    return [
        _decided(entry, next(decisions)) if refusal is None else _refused(entry, refusal)
        for entry, refusal in zip(entries, refusals, strict=True)
    ]


def _margin(entry: Entry, criteria: Criteria) -> Margin:
    rules = criteria.rules
    margin = criteria.margins.get(entry.case, rules.margin)
    if not entry.matchup.one_run:
        margin = max(criteria.margins.get(entry.case, 0.0), rules.advisory_margin)
    # A median of zero has no estimate, unless there is an offset.
    scale = (entry.base_value or 0.0) + offset_of(entry.metric)

    def share(absolute: float) -> float:
        return absolute / scale if scale > 0 else math.inf

    return Margin(
        configured=margin,
        spread=None if entry.spread is None else share(SPREAD_FACTOR * entry.spread),
        floor=share(entry.metric.floor),
    )


def _moved(entry: Entry, margin: Margin) -> Refusal | None:
    """The refusal of an entry whose control moved too far; moves below the floor do not count."""
    if margin.spread is None or margin.spread <= max(MAX_SPREAD, SPREAD_FACTOR * margin.floor):
        return None
    apart = f"{format_number(entry.spread or 0.0)} {entry.metric.unit}"
    detail = (
        f"copies of unchanged code differ by {apart}, which would need a margin of "
        f"{percent(margin.spread)}; expected at most {percent(MAX_SPREAD)}"
    )
    return Refusal(Verdict.INVALID, Cause.CONTROL_MOVED, detail)


def _refused(entry: Entry, refusal: Refusal) -> Judgement:
    base, other, ratio = entry.base_value, entry.other_value, None
    if refusal.cause is Cause.EXACT and base is not None and other is not None:
        ratio = 1.0 if base == other else other / base if base else None
    return _judgement(entry, (ratio, None, None), refusal)


def _decided(entry: Entry, decision: Decision) -> Judgement:
    evidence = decision.evidence
    if evidence is None:
        return _refused(entry, Refusal(decision.verdict, decision.cause, WHY_NOT_TESTED))
    estimate = Estimate(evidence.estimate, evidence.error, evidence.degrees, evidence.observations)
    interval = estimate.interval(1 - 2 * evidence.alpha)
    logs = (estimate.location, interval.low, interval.high)
    ratios = tuple(map(ratio_of, logs))
    detail = _detail(entry, decision.verdict, evidence)
    refusal = Refusal(decision.verdict, decision.cause, detail)
    return _judgement(entry, ratios, refusal, evidence)


def _judgement(
    entry: Entry,
    ratios: tuple[float | None, ...],
    refusal: Refusal,
    evidence: Evidence | None = None,
) -> Judgement:
    ratio, low, high = ratios
    return Judgement(
        operation=entry.operation,
        case=entry.case,
        metric=entry.metric.name,
        unit=entry.metric.unit,
        base=entry.matchup.base.label,
        other=entry.matchup.other.label,
        base_value=entry.base_value,
        other_value=entry.other_value,
        ratio=ratio,
        low=low,
        high=high,
        verdict=refusal.verdict,
        cause=refusal.cause,
        detail=refusal.detail,
        advisory=not entry.matchup.one_run,
        evidence=evidence,
    )


_BINDING = {
    "configured": "as configured",
    "spread": "three times what unchanged code differs by",
    "floor": "the floor of the metric",
}


def _detail(entry: Entry, verdict: Verdict, evidence: Evidence) -> str:
    margin = evidence.margin
    limit = f"the margin of {percent(margin.share)} ({_BINDING[margin.binds]})"
    change = math.expm1(min(LARGEST_LOG, evidence.estimate))
    offset = offset_of(entry.metric)
    counted = f", with {offset:g} us added to both sides, since it can be 0" if offset else ""
    if verdict is Verdict.SAME:
        return f"within the margin of {percent(margin.wanted)}{counted}"
    if verdict is Verdict.INCONCLUSIVE:
        if margin.binds == "spread":
            wanted = percent(margin.wanted)
            return f"{100 * change:+.1f} % is not shown to be beyond {limit}, nor within {wanted}"
        return f"{100 * change:+.1f} % may be within or beyond {limit}{counted}"
    word = "slower" if verdict is Verdict.SLOWER else "faster"
    return f"{word} by {percent(abs(change))}, beyond {limit}{counted}"
