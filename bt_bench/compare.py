"""Pairs the cases of results and sets their figures side by side; no verdicts, no formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bt_bench.comparability import Labelled, crash_warnings, refuse_differences
from bt_bench.crosscheck import Crosscheck, crosschecks
from bt_bench.errors import NotComparableError, UsageError
from bt_bench.model import (
    BASELINE,
    Calibration,
    CaseResult,
    LaunchCensus,
    Reason,
    Series,
    Status,
    VariantResult,
)
from bt_bench.operation import Operation
from bt_bench.pairing import match_cases, why_missing
from bt_bench.resolution import Resolution, pair_rounds, resolve
from bt_bench.series import place_of, typical_us
from bt_bench.stats import typical


@dataclass(frozen=True)
class Side:
    """One of the results that are compared."""

    label: str
    variant: str
    run_id: str
    complete: bool


@dataclass(frozen=True)
class SeriesPair:
    """One series of two sides.

    Args:
        series: what was measured, and how.
        base_us: median of the base; `None` where it has no such measurement.
        other_us: median of the other side, likewise.
        savings_us: base less other, positive where the other is faster. Sides of one interleaved
            run are paired by round and step, and this is the median of their differences; else it
            is the difference of the medians.
        paired: which of the two it is.
        resolution: the smallest difference that can be told from none; `None` where there are too
            few instances to say, or the sides are not paired.
    """

    series: Series
    base_us: float | None
    other_us: float | None
    savings_us: float | None
    paired: bool
    resolution: Resolution | None = None

    @property
    def savings_percent(self) -> float | None:
        """Savings in percent of the base, resolved or not."""
        if self.savings_us is None or not self.base_us:
            return None
        return 100 * self.savings_us / self.base_us

    @property
    def resolved(self) -> bool | None:
        """Whether the savings can be told from none; `None` where that is not known."""
        if self.savings_us is None or self.resolution is None:
            return None
        return self.resolution.resolves(self.savings_us)


@dataclass(frozen=True)
class LaunchPair:
    """Launches per step of the window; `None` on the side that did not count them.

    `same` says whether both made the same launches: kind, name and count, in every step.
    """

    base: tuple[int, ...] | None
    other: tuple[int, ...] | None
    same: bool | None


@dataclass(frozen=True)
class CasePair:
    """A case that is `ok` on both sides. `base` and `other` are labels.

    `series` has what either side measured; the checks say whether the device times of each side
    can be trusted.
    """

    operation: Operation
    case: str
    digest: str
    base: str
    other: str
    series: tuple[SeriesPair, ...]
    launches: LaunchPair
    base_checks: tuple[Crosscheck, ...]
    other_checks: tuple[Crosscheck, ...]


@dataclass(frozen=True)
class MissingCase:
    """A case that one side lacks; it is compared with nothing."""

    operation: Operation
    case: str
    present: str
    absent: str
    why: str


@dataclass(frozen=True)
class FailedCase:
    """A case that is not `ok` for the side `label`; it is compared with nothing."""

    operation: Operation
    case: str
    label: str
    status: Status
    reason: Reason | None


@dataclass(frozen=True)
class Comparison:
    """All sides against the base. `warnings` are texts about the comparison as a whole."""

    base: str
    sides: tuple[Side, ...]
    pairs: tuple[CasePair, ...]
    missing: tuple[MissingCase, ...]
    failed: tuple[FailedCase, ...]
    warnings: tuple[str, ...]


def compare(
    results: Sequence[VariantResult],
    labels: Sequence[str] | None = None,
    *,
    base: int | None = None,
    ignore_device: bool = False,
    ignore_plan: bool = False,
) -> Comparison:
    """Sets two or more results against one of them.

    Args:
        results: of any variants and runs.
        labels: names to print, one per result; default: the variants' names.
        base: index of the result that the others are compared with; default: `baseline_index`.
        ignore_device: accept another device or other versions of torch, CUDA or Triton.
        ignore_plan: accept another measurement plan.

    Raises:
        NotComparableError: if they differ in a way that is not ignored, or share no `ok` case.
    """
    if len(results) < 2:
        raise UsageError(f"compare needs two results or more, got {len(results)}")
    names = unique_labels(results, labels)
    sides = [Labelled(name, result) for name, result in zip(names, results, strict=True)]
    base_side = sides[baseline_index(results) if base is None else base]
    warnings = [f"{side.label} is a partial result" for side in sides if not side.result.complete]
    warnings += [warning for side in sides for warning in crash_warnings(side)]
    parts: list[_Part] = []
    for other in sides:
        if other is not base_side:
            warnings += refuse_differences(
                base_side, other, ignore_device=ignore_device, ignore_plan=ignore_plan
            )
            parts.append(_compare_two(base_side, other))
    return Comparison(
        base=base_side.label,
        sides=tuple(_describe_side(side) for side in sides),
        pairs=tuple(pair for part in parts for pair in part.pairs),
        missing=tuple(missing for part in parts for missing in part.missing),
        # The base's own failures come up once per other side.
        failed=tuple(dict.fromkeys(failure for part in parts for failure in part.failed)),
        warnings=tuple(warnings),
    )


def baseline_index(results: Sequence[VariantResult]) -> int:
    """The arm that others are compared with: the variant `baseline`, else the first result."""
    names = [result.variant.name for result in results]
    return names.index(BASELINE) if BASELINE in names else 0


def unique_labels(
    results: Sequence[VariantResult], labels: Sequence[str] | None = None
) -> list[str]:
    """A label per result: as given, else the variant, with its run where that is not enough."""
    if labels is None:
        names = [result.variant.name for result in results]
        labels = [
            name if names.count(name) == 1 else f"{name} ({result.run_id})"
            for name, result in zip(names, results, strict=True)
        ]
    if len(labels) != len(results):
        raise UsageError(f"got {len(labels)} labels for {len(results)} results")
    unique: list[str] = []
    for label in labels:
        candidate, number = label, 2
        while candidate in unique:
            candidate, number = f"{label} #{number}", number + 1
        unique.append(candidate)
    return unique


@dataclass(frozen=True)
class _Part:
    """What the base and one other side have in common, and what not."""

    pairs: list[CasePair]
    missing: list[MissingCase]
    failed: list[FailedCase]


def _describe_side(side: Labelled) -> Side:
    result = side.result
    return Side(side.label, result.variant.name, result.run_id, result.complete)


def _compare_two(base: Labelled, other: Labelled) -> _Part:
    matches, only_base, only_other = match_cases(base.result.cases, other.result.cases)
    part = _Part(
        pairs=[],
        missing=[
            *_missing(only_base, present=base, absent=other),
            *_missing(only_other, present=other, absent=base),
        ],
        failed=[],
    )
    for left, right in matches:
        failed = [
            FailedCase(case.operation, case.case, side.label, case.status, case.reason)
            for side, case in ((base, left), (other, right))
            if case.status is not Status.OK
        ]
        part.failed.extend(failed)
        if not failed:
            part.pairs.append(_pair(left, right, base, other))
    if not part.pairs:
        raise NotComparableError(_nothing_in_common(base.label, other.label, part))
    return part


def _missing(
    cases: Sequence[CaseResult], *, present: Labelled, absent: Labelled
) -> Iterator[MissingCase]:
    keys = {case.key for case in absent.result.cases}
    for case in cases:
        why = why_missing(case, absent.label, keys, absent.result.complete)
        yield MissingCase(case.operation, case.case, present.label, absent.label, why)


def _pair(left: CaseResult, right: CaseResult, base: Labelled, other: Labelled) -> CasePair:
    one_run = base.result.run_id == other.result.run_id
    calibration = base.result.calibration
    measured = {taken.series for case in (left, right) for taken in case.measurements}
    return CasePair(
        operation=left.operation,
        case=left.case,
        digest=left.workload.digest,
        base=base.label,
        other=other.label,
        series=tuple(
            pair_series(left, right, series, calibration, one_run=one_run)
            for series in sorted(measured, key=place_of)
        ),
        launches=_pair_launches(left.launches, right.launches),
        base_checks=crosschecks(left, calibration),
        other_checks=crosschecks(right, other.result.calibration),
    )


def pair_series(
    base: CaseResult,
    other: CaseResult,
    series: Series,
    calibration: Calibration | None,
    *,
    one_run: bool,
) -> SeriesPair:
    """One series of two cases.

    Args:
        base: the case of the base.
        other: the case of the other side.
        series: what is set side by side.
        calibration: of the run, where both are of one.
        one_run: whether their rounds ran side by side.
    """
    base_us, other_us = typical_us(base, series), typical_us(other, series)
    left, right = base.measurement(series), other.measurement(series)
    if base_us is None or other_us is None or left is None or right is None:
        return SeriesPair(series, base_us, other_us, None, paired=False)
    paired = pair_rounds(left, right) if one_run else None
    difference = typical(paired.differences_us) if paired else None
    if difference is None:
        return SeriesPair(series, base_us, other_us, base_us - other_us, paired=False)
    resolution = resolve(base, other, series, calibration)
    return SeriesPair(series, base_us, other_us, difference, paired=True, resolution=resolution)


def _pair_launches(base: LaunchCensus | None, other: LaunchCensus | None) -> LaunchPair:
    same = None
    if base is not None and other is not None:
        same = _multisets(base) == _multisets(other)
    return LaunchPair(
        base=None if base is None else tuple(base.totals()),
        other=None if other is None else tuple(other.totals()),
        same=same,
    )


def _multisets(census: LaunchCensus) -> list[list[tuple[str, str, int]]]:
    return [
        sorted((launch.kind, launch.name, launch.count) for launch in step) for step in census.steps
    ]


def _nothing_in_common(base_label: str, other_label: str, part: _Part) -> str:
    sides = f"{base_label} and {other_label}"
    if part.failed:
        first = part.failed[0]
        reason = f": {first.reason.message}" if first.reason else ""
        return (
            f"{sides} have no case that both completed; the first is "
            f"{first.operation}/{first.case}, {first.status} for {first.label}{reason}"
        )
    if part.missing:
        first_missing = part.missing[0]
        case = f"{first_missing.operation}/{first_missing.case}"
        return f"{sides} have no case in common; for {case}, {first_missing.why}"
    return f"{sides} have no case in common: both are empty"
