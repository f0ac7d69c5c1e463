"""The step from an estimate, or the reason why there is none, to a judgement.

`compare`, the tables of a sweep, the gate and the static gate differ in the source of their
figures. From there on they are one: the parts of a margin, the families of tests, the printed
interval, and the wording.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bt_bench.analysis.deciding import Contest, Correction, Decision, decide
from bt_bench.analysis.statistics.estimates import (
    LARGEST_LOG,
    Estimate,
    geometric_mean,
    ratio_of,
)
from bt_bench.analysis.verdicts import (
    NO_SYSTEMATIC,
    Cause,
    Evidence,
    Judgement,
    Margin,
    Overall,
    Systematic,
    Verdict,
)
from bt_bench.base import format_number, format_share, unit_text
from bt_bench.base.names import Operation
from bt_bench.results import FloatArray, Metric

SPREAD_FACTOR = 3.0
"""An estimate may be off by this many times the difference of unchanged code."""

MOST_TOLD = 10.0
"""Larger slowdowns are not distinguished, as a share: a factor of eleven is large enough."""

BINDING = {"configured": "as configured", "floor": "the floor of the metric"}
"""The part that sets a margin, in words."""

WHY_NOT_TESTED = (
    "its figures are so large, so small or so far apart that their ratio cannot be computed"
)


@dataclass(frozen=True, slots=True)
class Settled:
    """A verdict that needs no test: why there is no estimate, or a count."""

    verdict: Verdict
    cause: Cause
    detail: str


@dataclass(slots=True, eq=False)
class Entry:
    """The inputs of one judgement.

    Args:
        operation: the operation of the case.
        case: name of the case.
        metric: the compared metric.
        base: label of the side that is compared with.
        other: label of the side that is judged.
        base_value: median of the base; `None` if it has none.
        other_value: median of the other side, likewise.
        outcome: the estimate, or why there is none.
        margin: by how much the sides may differ; needed for an estimate.
        systematic: by how much the estimate may be off beyond its standard error.
        family: entries of equal family are corrected together.
        exploratory: it is not one of the primary metrics of its operation.
        advisory: the sides are of different runs.
        decides: whether the exit code follows it.
        after: a clause on how many rounds there were, such as `after 12 rounds`.
    """

    operation: Operation
    case: str
    metric: Metric
    base: str
    other: str
    base_value: float | None = None
    other_value: float | None = None
    outcome: Estimate | Settled | None = None
    margin: Margin | None = None
    systematic: Systematic = NO_SYSTEMATIC
    family: Hashable = None
    exploratory: bool = False
    advisory: bool = False
    decides: bool = True
    after: str = ""


def judge_entries(
    entries: Sequence[Entry], correction: Correction, alpha: float, share: float = 1.0
) -> list[Judgement]:
    """Judge entries, in their order; entries of one family are corrected together.

    Args:
        entries: each with an outcome.
        correction: for many tests.
        alpha: of each family, at this look.
        share: of each family that the entries are; see `decide`.
    """
    families: dict[Hashable, list[tuple[Entry, Contest]]] = {}
    for entry in entries:
        if (contest := _contest(entry)) is not None:
            families.setdefault(entry.family, []).append((entry, contest))
    decisions: dict[int, Decision] = {}
    for members in families.values():
        decided = decide([contest for _, contest in members], correction, alpha, share)
        decisions |= {id(entry): each for (entry, _), each in zip(members, decided, strict=True)}
    return [
        settled(entry) if id(entry) not in decisions else _decided(entry, decisions[id(entry)])
        for entry in entries
    ]


def margin_of(
    metric: Metric, base_value: float | None, configured: float, floor: float | None = None
) -> Margin:
    """Return the margin of a metric.

    Args:
        metric: the compared metric.
        base_value: median of the base.
        configured: the requested threshold, as a share.
        floor: an absolute difference that counts as none, in the unit of the metric; `None` for the
            metric's own.
    """
    floor = metric.floor if floor is None else floor
    # A median of zero has no estimate, unless there is an offset.
    scale = (base_value or 0.0) + metric.offset
    return Margin(configured=configured, floor=floor / scale if scale > 0 else math.inf)


def systematic_of(spread: float | None) -> Systematic:
    """Return how far an estimate may be off, from the share by which unchanged code differs."""
    return Systematic(None if spread is None else SPREAD_FACTOR * spread)


def settled(entry: Entry) -> Judgement:
    """Return the judgement on an entry whose outcome needs no test."""
    outcome = entry.outcome
    if not isinstance(outcome, Settled):
        raise TypeError(f"{entry.operation}/{entry.case} has {outcome!r}, which needs a test")
    base, other, ratio = entry.base_value, entry.other_value, None
    if outcome.cause is Cause.EXACT and base is not None and other is not None:
        ratio = 1.0 if base == other else other / base if base else None
    return _judgement(entry, outcome, (ratio, None, None))


def exact(base: float, other: float, detail: str, floor: float = 0.0) -> Settled:
    """Return the verdict on a count or a size, less being better: `SLOWER` for more.

    Args:
        base: value of the base.
        other: value of the other side.
        detail: the counted thing, or how it changed.
        floor: a difference up to this counts as none.
    """
    if base != other and abs(other - base) <= floor:
        return Settled(Verdict.SAME, Cause.EXACT, f"{detail}, within the floor of {floor:g}")
    if base == other:
        return Settled(Verdict.SAME, Cause.EXACT, detail)
    return Settled(Verdict.SLOWER if other > base else Verdict.FASTER, Cause.EXACT, detail)


NO_CLOCK = "no real clock does that"

LEAST_ERROR = 1e-9
"""Log ratios less than this apart are equal up to rounding."""


def has_zero(side: str) -> Settled:
    """Return the refusal of a side with a time of zero.

    Args:
        side: its name in the sentence.
    """
    detail = f"the {side} has a time of zero, so there is no ratio"
    return Settled(Verdict.INVALID, Cause.NOT_POSITIVE, detail)


def impossible(side: str) -> Settled:
    """Return the refusal of a side with a time that is negative, infinite, or not a number."""
    detail = f"the {side} has a time that no clock can have measured"
    return Settled(Verdict.INVALID, Cause.IMPOSSIBLE, detail)


def without_variance(apart: float, side: str) -> Settled | None:
    """Refuse a side that differs from the base by the same ratio in all rounds.

    Args:
        apart: how far the log ratios of rounds lie apart, or a standard error that only rounds of
            the same ratio can have.
        side: its name in the sentence.
    """
    if apart >= LEAST_ERROR:
        return None
    detail = f"{side} and base differ by the same in all rounds; {NO_CLOCK}"
    return Settled(Verdict.INVALID, Cause.NO_VARIANCE, detail)


def tick_error(tick: float, base: FloatArray, other: FloatArray) -> FloatArray:
    """Return the error that a clock's tick alone leaves in the log ratio of two medians.

    A rounding error is uniform over a tick, so its standard deviation is tick / sqrt(12). Where
    values repeat it is the same in all rounds, so more rounds do not reduce it.

    Args:
        tick: in the unit of the medians.
        base: medians of the base.
        other: medians of the other side.
    """
    error: FloatArray = tick / math.sqrt(12) * np.hypot(1 / base, 1 / other)
    return error


def overall_ratios(judgements: Sequence[Judgement]) -> Iterator[Overall]:
    """Yield the geometric mean of the ratios of each operation, metric and side.

    It covers the cases that have a ratio. There is no mean where a count went to zero or came from
    it, since no ratio would show that. Means of counts have no interval: they are exact.
    """
    members: dict[tuple[Operation, str, str, str], list[Judgement]] = {}
    for each in judgements:
        if each.evidence is not None or each.cause is Cause.EXACT:
            group = each.operation, each.metric, each.base, each.other
            members.setdefault(group, []).append(each)
    for (operation, metric, base, other), of_metric in members.items():
        found = [each.ratio or 0.0 for each in of_metric]
        if 0.0 in found:
            continue
        mean = geometric_mean(found)
        timed = any(each.evidence is not None for each in of_metric)
        interval = mean.interval if timed else None
        low, high = (interval.low, interval.high) if interval else (None, None)
        yield Overall(operation, metric, base, other, len(found), mean.ratio, low, high)


def _contest(entry: Entry) -> Contest | None:
    if not isinstance(entry.outcome, Estimate):
        return None
    if entry.margin is None:
        raise TypeError(f"{entry.operation}/{entry.case} has an estimate but no margin")
    return Contest(entry.outcome, entry.margin, entry.systematic, entry.metric.direction)


def _decided(entry: Entry, decision: Decision) -> Judgement:
    evidence = decision.evidence
    if evidence is None:
        outcome = Settled(decision.verdict, decision.cause, WHY_NOT_TESTED)
        return _judgement(entry, outcome, (None, None, None))
    logs = (evidence.estimate, evidence.log_low, evidence.log_high)
    outcome = Settled(decision.verdict, decision.cause, _detail(entry, decision.verdict, evidence))
    return _judgement(entry, outcome, tuple(map(ratio_of, logs)), evidence)


def _judgement(
    entry: Entry,
    outcome: Settled,
    ratios: tuple[float | None, ...],
    evidence: Evidence | None = None,
) -> Judgement:
    ratio, low, high = ratios
    return Judgement(
        operation=entry.operation,
        case=entry.case,
        metric=entry.metric.name,
        unit=entry.metric.unit,
        base=entry.base,
        other=entry.other,
        base_value=entry.base_value,
        other_value=entry.other_value,
        ratio=ratio,
        low=low,
        high=high,
        verdict=outcome.verdict,
        cause=outcome.cause,
        detail=outcome.detail,
        exploratory=entry.exploratory,
        advisory=entry.advisory,
        decides=entry.decides,
        evidence=evidence,
    )


def _detail(entry: Entry, verdict: Verdict, evidence: Evidence) -> str:
    margin = evidence.margin
    limit = f"the margin of {format_share(margin.share)} ({BINDING[margin.binds]})"
    change = math.expm1(min(LARGEST_LOG, evidence.estimate))
    offset = entry.metric.offset
    counted = f", with {offset:g} µs added to both sides, since it can be 0" if offset else ""
    after = f" {entry.after}" if entry.after else ""
    if verdict is Verdict.SAME:
        return f"within the margin of {format_share(margin.share)}{counted}{after}"
    if verdict is Verdict.INCONCLUSIVE:
        return (
            f"{100 * change:+.1f} % may be within or beyond {limit}{counted}{after}; "
            f"{_found_text(entry, evidence)}{_doubts(entry, evidence)}"
        )
    word = "slower" if verdict is Verdict.SLOWER else "faster"
    return f"{word} by {format_share(abs(change))}, beyond {limit}{counted}{after}"


def _found_text(entry: Entry, evidence: Evidence) -> str:
    """Return the detectable slowdown as text: a share, and an amount in the metric's unit."""
    found = evidence.detectable
    if found >= MOST_TOLD:
        return f"no slowdown below {format_share(MOST_TOLD)} would have been found"
    scale = (entry.base_value or 0.0) + entry.metric.offset
    amount = f"{format_number(found * scale)} {unit_text(entry.metric.unit)}"
    return f"a slowdown of {format_share(found)} ({amount}) would have been found"


def _doubts(entry: Entry, evidence: Evidence) -> str:
    """Return doubts about the estimate beyond its standard error, if they matter."""
    systematic, doubts = evidence.systematic, ""
    if (systematic.copies or 0.0) > evidence.margin.share:
        share = format_share((systematic.copies or 0.0) / SPREAD_FACTOR)
        doubts += f"; copies of unchanged code differ by {share}"
    slower, faster = 100 * math.expm1(systematic.slowed), -100 * math.expm1(-systematic.sped)
    may = [f"{slower:.0f} % slower"] * (slower >= 1) + [f"{faster:.0f} % faster"] * (faster >= 1)
    if may:
        what = "the other GPU" if entry.metric.is_of_device else "the host"
        doubts += f"; {what} may have made it {' or '.join(may)}"
    return doubts
