"""The figures of `worst.py`: the ratios of each case.

A ratio is another variant's time over the judged variant's time. It comes from `bt-bench compare`
over rounds that both took part in, with the interval behind the verdict. A quantity that was not
measured, or is not credible, has a reason instead of a ratio.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from worst_arms import (
    DEVICE,
    HOST_STAGE,
    METRICS,
    TO_SYNC,
    factor_of,
    judge_sides,
)
from worst_runs import CaseSizes, Left

from bt_bench.analysis import WHOLE_CASE, Judgement, PlainCopy, Verdict, percentile
from bt_bench.results import CompactCase, Status, Taken

QUANTITIES = (HOST_STAGE, DEVICE, TO_SYNC)
SHIPPED = ("baseline", "fused_apply", "fused_gather_slots", "fused")
"""Variants, besides vLLM, that the judged variant must not be slower than."""

FEWEST_FOR_TAIL = 100
"""Fewest samples for a meaningful 99th percentile."""

DELAY_US = 12.0
"""Longer than the inherent variation of a step of some 10 µs."""

COPY_BOUND_SHARE = 1 / 3
"""From this share of the opponent's device time on, a plain copy bounds the possible gain."""


@dataclass(frozen=True)
class Ratio:
    """Another variant's time over the judged variant's, in one quantity.

    Args:
        other: the other variant.
        value: the ratio; `None` if unknown.
        low: lower end of its interval.
        high: upper end of its interval.
        rounds: number of observations.
        verdict: verdict on the judged variant.
        why: reason why there is no ratio.
    """

    other: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    verdict: str | None = None
    why: str | None = None


@dataclass(frozen=True)
class Tail:
    """99th percentile over median of host + stage, from the same rounds of both; see `tail_of`.

    Args:
        ours: value of the judged variant.
        theirs: value of the opponent.
        samples: number of samples of each.
        delayed: number of our samples that are `DELAY_US` or more above the median of their step.
        measured_us: sum of our samples.
    """

    ours: float
    theirs: float
    samples: int
    delayed: int = 0
    measured_us: float = 0.0

    @property
    def ratio(self) -> float:
        """The judged variant's value over the opponent's."""
        return self.ours / self.theirs


@dataclass(frozen=True)
class CaseFigures:
    """All figures of a case.

    Args:
        name: config and case.
        sizes: sizes of its workload.
        us: median by quantity and variant.
        against: by quantity, the ratio to the opponent.
        beside: by quantity, the ratio to the best other shipped variant.
        slower_than: by quantity, the shipped variants that the judged one is slower than.
        copy_us: time of a plain copy of its bytes, median over steps; `None` if unknown.
        copy_share: copy time over the opponent's device time, median over steps.
        copy_speed: copy time over the judged variant's device time, median over steps: its speed
            relative to a plain copy.
        tail: tail of host + stage.
        why_no_tail: reason why there is no tail.
    """

    name: str
    sizes: CaseSizes
    us: Mapping[str, Mapping[str, float]]
    against: Mapping[str, Ratio]
    beside: Mapping[str, Ratio]
    slower_than: Mapping[str, Sequence[str]]
    copy_us: float | None = None
    copy_share: float | None = None
    copy_speed: float | None = None
    tail: Tail | None = None
    why_no_tail: str | None = None

    @property
    def is_copy_bound(self) -> bool | None:
        """Return whether a plain copy takes a third of the opponent's device time or more."""
        return None if self.copy_share is None else self.copy_share >= COPY_BOUND_SHARE


def figures_of(
    left: Left, copy: PlainCopy | None, variant: str, opponent: str
) -> Iterator[CaseFigures]:
    """Yield the figures of a sweep's cases in the order of its config; none without the variant.

    A case is left out if its workload has changed since the sweep: its sizes are unknown.

    Args:
        left: results of the sweep.
        copy: times of plain copies; `None` if unknown.
        variant: the judged variant.
        opponent: the variant that it is compared with.
    """
    sides = left.sides()
    judged_side = sides.get(variant)
    if judged_side is None:
        return
    others = [name for name in (opponent, *SHIPPED) if name in sides and name != variant]
    found: dict[tuple[str, str, str], Judgement] = {}
    for other in others:
        metrics = [METRICS[what] for what in QUANTITIES]
        for each in judge_sides(sides[other], [judged_side], metrics):
            found[other, each.case, each.metric] = each
    by_name = {
        role: {case.case: case for case in side.result.cases} for role, side in sides.items()
    }
    for name in left.order:
        case = by_name[variant].get(name)
        sizes = left.sizes[name]
        if case is None or sizes.digest != case.digest:
            continue

        def ratio(other: str, what: str, name: str = name) -> Ratio:
            if other not in sides:
                return Ratio(other, why=f"{other} is not in the run")
            known = found.get((other, name, METRICS[what].name))
            return _ratio(other, known or found.get((other, name, WHOLE_CASE.name)))

        shipped = [other for other in others if other in SHIPPED]
        theirs = by_name.get(opponent, {}).get(name)
        us = {what: _medians(by_name, (variant, *others), name, what) for what in QUANTITIES}
        beside = {what: ratio(_least(us[what], shipped), what) for what in QUANTITIES}
        slower = {
            what: [other for other in shipped if ratio(other, what).verdict == Verdict.SLOWER]
            for what in QUANTITIES
        }
        tail = tail_of(_taken(case, HOST_STAGE), _taken(theirs, HOST_STAGE))
        yield CaseFigures(
            f"{left.config}/{name}",
            sizes,
            us,
            {what: ratio(opponent, what) for what in QUANTITIES},
            beside,
            slower,
            *_copied(copy, sizes, _taken(case, DEVICE), _taken(theirs, DEVICE)),
            *((tail, None) if isinstance(tail, Tail) else (None, tail)),
        )


def _ratio(other: str, found: Judgement | None) -> Ratio:
    factor = factor_of(found)
    if found is None:
        return Ratio(other, why="it was not measured")
    if factor is None:
        return Ratio(other, verdict=found.verdict.value, why=f"{found.verdict}: {found.detail}")
    ends = factor.low, factor.high
    return Ratio(other, factor.value, *ends, factor.count, found.verdict.value)


def _medians(
    by_name: Mapping[str, Mapping[str, CompactCase]], roles: Sequence[str], case: str, what: str
) -> dict[str, float]:
    """Return the median over steps of each step's median over rounds, for variants that have it."""
    found = {role: _taken(by_name[role].get(case), what) for role in roles}
    return {
        role: float(np.median(np.median(taken.samples, axis=0)))
        for role, taken in found.items()
        if taken is not None
    }


def _least(us: Mapping[str, float], shipped: Sequence[str]) -> str:
    """Return the fastest shipped variant, even if its ratio is unknown; else the first one."""
    known = [name for name in shipped if name in us]
    return min(known, key=lambda name: us[name]) if known else next(iter(shipped), "no other")


def tail_of(ours: Taken | None, theirs: Taken | None) -> Tail | str:
    """Return the 99th percentile over the median for both sides, or the reason why it is unknown.

    Both sides use the rounds that both have. Each sample is divided by the median of its step,
    which makes the steps of a window comparable.
    """
    if ours is None or theirs is None:
        return "one side has no samples"
    rounds = sorted(set(ours.rounds) & set(theirs.rounds))
    found = []
    for taken in (ours, theirs):
        samples = taken.samples[np.searchsorted(taken.rounds, rounds)]
        if samples.size < FEWEST_FOR_TAIL:
            return f"fewer than {FEWEST_FOR_TAIL} samples"
        found.append(percentile((samples / np.median(samples, axis=0)).ravel().tolist(), 99))
    samples = ours.samples[np.searchsorted(ours.rounds, rounds)]
    delayed = int((samples >= np.median(samples, axis=0) + DELAY_US).sum())
    return Tail(found[0], found[1], samples.size, delayed, float(samples.sum()))


def _taken(case: CompactCase | None, what: str) -> Taken | None:
    if case is None or case.status is not Status.OK:
        return None
    return case.measured(METRICS[what])


def _copied(
    copy: PlainCopy | None, sizes: CaseSizes, ours: Taken | None, theirs: Taken | None
) -> tuple[float | None, float | None, float | None]:
    """Return a plain copy's time in µs, and its shares of their and our device times.

    All are medians over steps, and `None` if unknown.
    """
    if copy is None:
        return None, None, None
    us = np.array([copy.us(moved) for moved in sizes.moved_bytes])
    shares = []
    for taken in (theirs, ours):
        times = None if taken is None else np.median(taken.samples, axis=0)
        known = times is not None and times.shape == us.shape and (times > 0).all()
        shares.append(float(np.median(us / times)) if known else None)
    return float(np.median(us)), shares[0], shares[1]
