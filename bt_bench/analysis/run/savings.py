"""Savings of the variants of a run: each series beside the same series of the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bt_bench.analysis.figures import typical_us
from bt_bench.analysis.run.resolution import Resolution, pair_rounds, resolve
from bt_bench.analysis.statistics.samples import typical
from bt_bench.errors import UsageError
from bt_bench.names import Operation
from bt_bench.results import (
    BASELINE,
    Calibration,
    CaseResult,
    Reason,
    Series,
    Status,
    VariantResult,
)


@dataclass(frozen=True)
class SeriesPair:
    """One series of two sides.

    Args:
        series: what was measured, and how.
        base_us: median of the base; `None` where it has no such measurement.
        other_us: median of the other side, likewise.
        savings_us: base minus other, positive where the other is faster. Sides of one interleaved
            run are paired by round and step, and this is the median of their differences; else it
            is the difference of the medians.
        paired: whether the rounds were paired.
        resolution: the smallest difference that can be told from zero; `None` with too few
            instances, or if the sides are not paired.
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
        """Whether the savings can be told from zero; `None` if that is not known."""
        if self.savings_us is None or self.resolution is None:
            return None
        return self.resolution.resolves(self.savings_us)


@dataclass(frozen=True)
class FailedCase:
    """A case that is not `ok` for the side `label`, so it is not compared."""

    operation: Operation
    case: str
    label: str
    status: Status
    reason: Reason | None


def baseline_index(results: Sequence[VariantResult]) -> int:
    """The arm that others are compared with: the variant `baseline`, else the first result."""
    names = [result.variant.name for result in results]
    return names.index(BASELINE) if BASELINE in names else 0


def unique_labels(
    results: Sequence[VariantResult], labels: Sequence[str] | None = None
) -> list[str]:
    """A label per result: as given, else the variant, with its run where names are ambiguous."""
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
