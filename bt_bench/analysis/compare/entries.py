"""The entries to judge: one per metric of each case, with its values and open questions."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from bt_bench.analysis.compare.estimating import Question
from bt_bench.analysis.compare.exact import Count, counts
from bt_bench.analysis.compare.pairing import match_cases, why_missing
from bt_bench.analysis.crosscheck import crosschecks_of, disagreements, intercept_us
from bt_bench.analysis.judging import Entry, Settled, exact
from bt_bench.analysis.lottery import device_lottery
from bt_bench.analysis.statistics.samples import median
from bt_bench.analysis.ticks import device_ticks, largest_ticks
from bt_bench.analysis.verdicts import Cause, Verdict
from bt_bench.base import format_number
from bt_bench.results import (
    CompactCase,
    CompactResult,
    Method,
    Metric,
    Status,
    Taken,
    metric_of,
    place_of,
    typical_of,
    with_ticks,
)

WHOLE_CASE = Metric("case", "")
"""The metric of an entry on a case that could not be compared at all."""


@dataclass(frozen=True)
class Side:
    """A result with its label in reports.

    Args:
        label: for reports.
        result: the measurements.
        folder: the run folder; `None` if not known.
        absent: why there is no result, if there is none. Then `result` has the cases that it should
            have, taken from another variant of its run.
    """

    label: str
    result: CompactResult
    folder: Path | None = None
    absent: str | None = None


@dataclass(frozen=True)
class Matchup:
    """Two sides; `other` is judged against `base`."""

    base: Side
    other: Side

    @property
    def one_run(self) -> bool:
        """Return whether their rounds ran side by side."""
        return self.base.result.header.run_id == self.other.result.header.run_id


def sides_of(matchups: Sequence[Matchup]) -> dict[str, Side]:
    """Return the sides that have a result, each once, by label."""
    both = (side for each in matchups for side in (each.base, each.other))
    return {side.label: side for side in both if not side.absent}


@dataclass(slots=True, eq=False)
class Asked:
    """An entry with its open question.

    Args:
        entry: becomes one judgement.
        matchup: the two sides.
        question: its answer becomes the entry's outcome; `None` where the outcome is known.
        spread: by how much an unchanged copy differed, as a share; `None` without a control.
        lottery: by how much device times may differ since they are of two GPUs, on the log scale.
    """

    entry: Entry
    matchup: Matchup
    question: Question | None = None
    spread: float | None = None
    lottery: float = 0.0


MOST_NAMED = 5
"""The largest number of cases that a fact names; it only counts the others."""


class Pairing:
    """The entries of one matchup.

    Args:
        matchup: the two sides.
        floors: by pattern of metric names, floors that replace the metrics' own.
    """

    def __init__(self, matchup: Matchup, floors: Mapping[str, float]) -> None:
        self._matchup = matchup
        self._floors = floors
        self._one_run = matchup.one_run
        self._unsupported: list[CompactCase] = []
        # By side and part, since each part of a merged result has a calibration of its own.
        parts = {
            (side.label, part): side.result.header.calibration_of(part)
            for side in (matchup.base, matchup.other)
            for part in side.result.header.part_numbers
        }
        self._intercepts = {
            (place, method): intercept_us(calibration, method)
            for place, calibration in parts.items()
            for method in Method
        }
        self._lotteries: dict[tuple[int | None, ...], float] = {}
        self._ticks = {place: device_ticks(calibration) for place, calibration in parts.items()}
        # Thousands of cases have the same few metrics.
        self._compared: dict[tuple[object, ...], tuple[Metric, bool]] = {}
        self._ordered: dict[tuple[object, ...], list[Metric]] = {}

    def entries(self, sums: Sequence[Metric] = ()) -> Iterator[Asked]:
        """Yield an entry per metric of each case; a case that only one side has gets one entry.

        Args:
            sums: sums of metrics, which are judged in addition.
        """
        base, other = self._matchup.base, self._matchup.other
        if base.absent or other.absent:
            yield from self._absent(base, other)
            return
        matches, only_base, only_other = match_cases(base.result.cases, other.result.cases)
        for left, right in matches:
            yield from self._pair(left, right, sums)
        for cases, absent in ((only_base, other), (only_other, base)):
            keys = {case.key for case in absent.result.cases}
            for case in cases:
                complete = absent.result.header.complete
                detail = why_missing(case, absent.label, keys, complete)
                outcome = Settled(Verdict.MISSING, Cause.NO_CASE, detail)
                yield self._entry(case, WHOLE_CASE, outcome=outcome)

    def _absent(self, base: Side, other: Side) -> Iterator[Asked]:
        """Yield one entry per case where a side has no result at all."""
        lacking, rest = (base, other) if base.absent else (other, base)
        outcome = Settled(Verdict.MISSING, Cause.NO_CASE, lacking.absent or "")
        for case in rest.result.cases or lacking.result.cases:
            yield self._entry(case, WHOLE_CASE, outcome=outcome)

    def _entry(
        self,
        case: CompactCase,
        metric: Metric,
        base_value: float | None = None,
        other_value: float | None = None,
        outcome: Settled | None = None,
        partner: CompactCase | None = None,
    ) -> Asked:
        base, other = self._matchup.base.label, self._matchup.other.label
        metric, primary = self._as_compared(metric, case, partner)
        entry = Entry(
            operation=case.operation,
            case=case.case,
            metric=metric,
            base=base,
            other=other,
            base_value=base_value,
            other_value=other_value,
            outcome=outcome,
            # Families follow the run and not the selection: equal questions get equal answers.
            family=(base, other, metric.name if metric.terms else primary),
            exploratory=not primary,
            advisory=not self._one_run,
        )
        return Asked(entry, self._matchup)

    def _as_compared(
        self, metric: Metric, case: CompactCase, partner: CompactCase | None
    ) -> tuple[Metric, bool]:
        """Return the metric with its floor and tick in this comparison, and whether it decides."""
        places = case.part, None if partner is None else (partner.part,)
        key = (metric.name, case.operation, *places)
        found = self._compared.get(key)
        if found is None:
            ticks = {} if partner is None else self._ticks_of(case, partner)
            metric = with_ticks(self._floored(metric), ticks)
            device = self._matchup.base.result.header.environment.device
            found = metric, metric.is_primary(case.operation, device)
            self._compared[key] = found
        return found

    def _ticks_of(self, left: CompactCase, right: CompactCase) -> dict[Method, float]:
        """Return the larger ticks of the calibrations that hold for both cases."""
        places = (self._matchup.base.label, left.part), (self._matchup.other.label, right.part)
        return largest_ticks(self._ticks[place] for place in places)

    def _floored(self, metric: Metric) -> Metric:
        """Return the metric with the requested floor."""
        floors = [floor for name, floor in self._floors.items() if fnmatchcase(metric.name, name)]
        return replace(metric, floor=floors[-1]) if floors else metric

    def facts(self) -> Iterator[str]:
        """Report cases without entries, since neither side supports them; call after `entries`."""
        if not self._unsupported:
            return
        base, other = self._matchup.base.label, self._matchup.other.label
        first = self._unsupported[0]
        named = first_named([case.key for case in self._unsupported])
        yield (
            f"Not compared, since neither {base} nor {other} supports it: {named}; reason for "
            f"{first.key}: {first.reason}."
        )

    def _pair(
        self, left: CompactCase, right: CompactCase, sums: Sequence[Metric]
    ) -> Iterator[Asked]:
        if left.status is right.status is Status.UNSUPPORTED:
            self._unsupported.append(left)  # neither side can have it, so nothing is missing
            return
        outcome = self._ended_badly(left, right)
        if outcome:
            yield self._entry(left, WHOLE_CASE, outcome=outcome)
            return
        doubts = self._doubts(self._matchup.other, right) | self._doubts(self._matchup.base, left)
        idle = _launches_nothing(left) and _launches_nothing(right)
        found = [
            self._measured(metric, left, right, _doubt(metric, doubts), idle)
            for metric in self._metrics_of(left, right, sums)
        ]
        found += [self._counted(left, count) for count in counts(left, right)]
        if not found:
            detail = "the case is ok on both sides, but nothing was measured or counted on either"
            outcome = Settled(Verdict.INVALID, Cause.INSUFFICIENT, detail)
            found.append(self._entry(left, WHOLE_CASE, outcome=outcome))
        yield from found

    def _ended_badly(self, left: CompactCase, right: CompactCase) -> Settled | None:
        for side, case in ((self._matchup.base, left), (self._matchup.other, right)):
            if case.status is Status.UNSUPPORTED:
                return Settled(Verdict.MISSING, Cause.NO_CASE, f"{side.label} {case.reason}")
            if case.status is not Status.OK:
                failed = case.status is Status.FAILED
                cause = Cause.FAILED if failed else Cause.INSUFFICIENT
                reason = f": {case.reason}" if case.reason else ""
                detail = f"{case.status.value} for {side.label}{reason}"
                return Settled(Verdict.INVALID, cause, detail)
        return None

    def _measured(
        self, metric: Metric, left: CompactCase, right: CompactCase, doubt: str | None, idle: bool
    ) -> Asked:
        base, other = left.measured(metric), right.measured(metric)
        if base is None or other is None:
            side, case = (
                (self._matchup.base, left) if base is None else (self._matchup.other, right)
            )
            outcome = Settled(Verdict.MISSING, Cause.NO_METRIC, _why_none(side.label, case, metric))
        elif doubt:
            outcome = Settled(Verdict.INVALID, Cause.METHODS_DISAGREE, doubt)
        else:
            asked = self._entry(left, metric, partner=right)
            spreads = [s for s in (left.spread(metric), right.spread(metric)) if s is not None]
            # Sides of one run have one control, which is more often a copy of the base.
            asked.spread = max(spreads[:1] if self._one_run else spreads, default=None)
            logs = left.instances, right.instances
            asked.lottery = self._lottery(left.part, right.part)
            asked.question = Question(base, other, *logs, self._one_run, idle)
            return asked
        return self._entry(left, metric, _typical(base), _typical(other), outcome, right)

    def _metrics_of(
        self, left: CompactCase, right: CompactCase, sums: Sequence[Metric]
    ) -> list[Metric]:
        key = (*left.taken, None, *right.taken)
        found = self._ordered.get(key)
        if found is None:
            taken = {**right.taken, **left.taken}
            found = metrics_in_order({name: each.metric for name, each in taken.items()})
            self._ordered[key] = found
        return [*found, *(s for s in sums if left.measured(s) or right.measured(s))]

    def _lottery(self, *parts: int | None) -> float:
        """Return by how much device times of two parts may differ, since they are of two GPUs."""
        if parts not in self._lotteries:
            headers = (side.result.header for side in (self._matchup.base, self._matchup.other))
            places = [
                (header.environment_of(part), header.calibration_of(part))
                for header, part in zip(headers, parts, strict=True)
            ]
            self._lotteries[parts] = device_lottery(places[0], places[1])
        return self._lotteries[parts]

    def _counted(self, case: CompactCase, count: Count) -> Asked:
        base, other = count.base, count.other
        if base is None or other is None:
            side = self._matchup.base if base is None else self._matchup.other
            detail = f"{side.label} did not count it"
            outcome = Settled(Verdict.MISSING, Cause.NO_METRIC, detail)
        else:
            floor = self._floored(count.metric).floor
            outcome = exact(base, other, count.detail, floor)
        return self._entry(case, count.metric, base, other, outcome)

    def _doubts(self, side: Side, case: CompactCase) -> dict[str, str]:
        """Return metrics that a second method contradicts, with the readings of both methods."""
        if not side.result.header.calibration_of(case.part):
            return {}  # no calibration, so no intercepts and no cross-checks
        launches, kinds = None, set()
        if case.launches is not None:
            kinds = {kind for step in case.launches for kind, _, _ in step}
            launches = median([sum(count for _, _, count in step) for step in case.launches])
        checks = crosschecks_of(
            lambda series: _typical(case.measured(metric_of(series))),
            launches,
            lambda method: self._intercepts[(side.label, case.part), method],
            kinds,
        )
        doubts = {}
        for check in disagreements(checks):
            readings = (check.first, check.second)
            said = " against ".join(
                f"{format_number(reading.corrected_us or 0.0)} µs by {reading.series.method.value}"
                for reading in readings
            )
            for reading in readings:
                doubts[metric_of(reading.series).name] = f"{side.label}: {said}"
        return doubts


def first_named(cases: Sequence[str]) -> str:
    """Join names of cases, up to `MOST_NAMED`, and count the others."""
    more = len(cases) - MOST_NAMED
    return f"{', '.join(cases[:MOST_NAMED])}{f' and {more} more' if more > 0 else ''}"


def metrics_in_order(metrics: Mapping[str, Metric]) -> list[Metric]:
    """Sort measured metrics in the order of series; then come sums and counted ones."""
    return sorted(metrics.values(), key=_place)


@functools.cache
def _place(metric: Metric) -> tuple[int, ...]:
    if metric.series is not None:
        return (0, *place_of(metric.series))
    return (1,) if metric.terms else (2,)


def _doubt(metric: Metric, doubts: Mapping[str, str]) -> str | None:
    """Return why a metric is not believed; a doubt about one term extends to a sum."""
    found = (doubts.get(each.name) for each in metric.terms or (metric,))
    return next(filter(None, found), None)


def _why_none(label: str, case: CompactCase, metric: Metric) -> str:
    """Return why a case has no value of a metric."""
    lacking = [term.name for term in metric.terms if term.name not in case.taken]
    if lacking or not metric.terms:
        return f"{label} did not measure {', '.join(lacking) or 'it'}"
    return f"{label} has no round with all of {', '.join(term.name for term in metric.terms)}"


def _launches_nothing(case: CompactCase) -> bool:
    return case.launches is not None and not any(case.launches)


def _typical(taken: Taken | None) -> float | None:
    """Return the same as `bt_bench.analysis.figures.typical_us`."""
    return None if taken is None else typical_of(taken.samples)
