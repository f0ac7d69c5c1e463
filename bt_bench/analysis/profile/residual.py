"""The excess of steps without a profiler over the prediction by traced ones, and its error."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bt_bench.analysis.profile.corrected import CorrectedSteps
from bt_bench.analysis.profile.weight import differences_in_turn, weight_of
from bt_bench.analysis.statistics.estimates import trimmed_estimate
from bt_bench.analysis.statistics.samples import median
from bt_bench.analysis.statistics.student import t_quantile
from bt_bench.results import Timeline, TracedSteps, Tracing

CONFIDENCE = 0.95
SHARE = 0.2
"""The share of the turns, on either side, that is left out of the mean."""
GROUPS = 10
LEAST_GROUPS = 3


@dataclass(frozen=True)
class Residual:
    """The time that the traced steps do not explain, in µs.

    Args:
        us: the trimmed mean over turns; negative if the traced steps exceed the others.
        error_us: half the 95 % interval of it; `None` for fewer than three turns.
    """

    us: float
    error_us: float | None


def residual_of(
    timeline: Timeline, plain: TracedSteps, traced: TracedSteps, ends_us: Sequence[float]
) -> Residual:
    """Return the time that traced steps do not explain, turn by turn.

    Its error comes from a jackknife which leaves out a tenth of the turns at a time: sqrt((g - 1) /
    g times the sum of squares of the g estimates), with g - 1 degrees of freedom. The weight of
    tracing is measured anew each time, since it is taken off all steps alike and the turns' scatter
    alone would not show its uncertainty. Source: Shao and Tu, "The Jackknife and Bootstrap" (1995),
    section 2.3. If a group has a turn more than another, both count alike, which makes the error a
    little larger.

    Args:
        timeline: with empty calls.
        plain: steps without a profiler; at least one.
        traced: steps with all calls and operations; at least one.
        ends_us: of the traced steps, without the time that tracing added to them.
    """
    located = _location(plain, traced, ends_us)
    turns = sorted({*plain.turns} & {*traced.turns})
    count = min(GROUPS, len(turns))
    if count < LEAST_GROUPS:
        return Residual(located, None)
    found = []
    for group in range(count):
        without = frozenset(turns[group::count])
        weight = weight_of(timeline, Tracing.ALL, without=without)
        assert weight is not None  # there are other turns
        found.append(_location(plain, traced, CorrectedSteps(traced, weight).ends_us, without))
    mean = sum(found) / count
    squares = sum((each - mean) ** 2 for each in found)
    error = math.sqrt((count - 1) / count * squares)
    return Residual(located, t_quantile((1 + CONFIDENCE) / 2, count - 1) * error)


def _location(
    plain: TracedSteps,
    traced: TracedSteps,
    ends_us: Sequence[float],
    without: Collection[int] = (),
) -> float:
    differences = differences_in_turn(
        plain.step_us, ends_us, plain.turns, traced.turns, without=without
    )
    count = len(differences)
    # Round, and cut at least one turn on either side. Truncation would cut one of five turns, but
    # none of the four that the jackknife leaves, and a slow turn would be all of the error.
    cut = max(1, round(SHARE * count))
    estimate = trimmed_estimate(differences, (cut + 0.5) / count) if count > 2 * cut + 1 else None
    return median(differences) if estimate is None else estimate.location
