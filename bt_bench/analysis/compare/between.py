"""The part of a change between two runs that the host's speed, or another GPU, may account for.

Two runs of equal code, one after the other, differ by far more than the rounds of either show: a
host may take more than twice as long in one minute as in another. Then all host code takes longer,
including code outside of the judged variant. So each host time has a reference in its case: staging
for times that launch, and launching for times that stage. The host may account for as much as the
reference moved, up to a limit, or for nothing; the change is somewhere in between. Times of kernels
hardly depend on the host, so they need no reference. Where the runs are of two GPUs, these may
account for as much as they differ in the copies of their calibrations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from bt_bench.analysis.compare.entries import Asked
from bt_bench.analysis.statistics.estimates import Estimate
from bt_bench.results import Method, Metric, Quantity

MOST_HOST = 4.0
"""The largest factor that the host may account for; it is assumed where there is no reference.

In twenty runs of equal code on one host, staging took up to 2.8 times as long in a case of one run
as in another, and launching up to 2.3 times; see `reports/equal-pairs`.
"""

LAUNCHING, STAGING = Quantity.HOST_US.value, Quantity.STAGE_US.value
"""Each is the reference of the other; staging is also the reference of all other host times."""


def add_host(asked: Iterable[Asked]) -> None:
    """Set the change that the host may account for, in answered entries on two different runs."""
    between = [each for each in asked if not each.matchup.one_run]
    moved: dict[tuple[str | None, ...], float] = {
        (*_case(each), each.entry.metric.name): each.entry.outcome.location
        for each in between
        if isinstance(each.entry.outcome, Estimate)
    }
    most = math.log(MOST_HOST)
    for each in between:
        shifts = [0.0]
        if any(term.is_of_device for term in each.entry.metric.terms or (each.entry.metric,)):
            shifts += [each.lottery, -each.lottery]
        for name in _references(each.entry.metric):
            shift = moved.get((*_case(each), name))
            # A reference that has moved beyond the limit did so for reasons of its own.
            shifts += [most, -most] if shift is None else [max(-most, min(most, shift))]
        each.entry.systematic = replace(
            each.entry.systematic, slowed=max(shifts), sped=-min(shifts)
        )


def _case(asked: Asked) -> tuple[str, ...]:
    entry = asked.entry
    return entry.base, entry.other, entry.operation, entry.case


def _references(metric: Metric) -> Iterator[str | None]:
    """Yield names of metrics that show the host's speed; `None` where no metric does."""
    for term in metric.terms or (metric,):
        if term.series is None or term.is_of_device:
            continue
        if term.series.method is Method.PROFILER:
            yield None  # within a few milliseconds, the host may be slower than at any other time
        else:
            yield LAUNCHING if term.name == STAGING else STAGING
