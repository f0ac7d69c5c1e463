"""Whether the gate keeps its promises: gates of equal code, and of code slowed by a known share.

Rounds come from a population: a recording that is drawn from again and again, or a made-up machine.
They go through the same `run_gate` as those of a live gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bt_bench.analysis import (
    Interval,
    Promise,
    Rules,
    Verdict,
    exit_code,
    percentile,
    wilson_interval,
)
from bt_bench.errors import ExitCode, UsageError
from bt_bench.results import FloatArray, Subject
from bt_bench.runs.gate.loop import GateOutcome, GatePlan, run_gate
from bt_bench.runs.progress import Progress
from bt_bench.runs.selfcheck.resampled import ArraySource, Population

EFFECTS = (0.01, 0.02, 0.03, 0.05, 0.10)
FACTORS = (2, 3)

MOST_RED = 0.01
LEAST_FOUND = {2: 0.95, 3: 0.99}  # by multiple of the margin that a case is slowed

_ROUNDING = 1e-9  # tolerance for comparing multiples of a margin


@dataclass(frozen=True)
class Slowdown:
    """By how much one case is slowed: a share of its time, or a multiple of its margin."""

    amount: float
    of_margin: bool = False

    @property
    def label(self) -> str:
        """As in tables: `+3 %`, `2 x margin`."""
        return f"{self.amount:g} x margin" if self.of_margin else f"+{100 * self.amount:g} %"

    def share(self, margin: float) -> float:
        """The slowdown as a share of the case's time."""
        return self.amount * margin if self.of_margin else self.amount


SLOWDOWNS = (
    *(Slowdown(effect) for effect in EFFECTS),
    *(Slowdown(factor, of_margin=True) for factor in FACTORS),
)


@dataclass(frozen=True)
class Rate:
    """How often something happened."""

    times: int
    trials: int

    @property
    def share(self) -> float | None:
        """`None` without trials."""
        return self.times / self.trials if self.trials else None

    @property
    def interval(self) -> Interval | None:
        """Wilson's interval at 95 %."""
        return wilson_interval(self.times, self.trials) if self.trials else None


def rate_of(hits: Sequence[bool]) -> Rate:
    """How many are true."""
    return Rate(sum(hits), len(hits))


@dataclass(frozen=True)
class Trial:
    """One draw of rounds, judged as it is and with one case slowed.

    Args:
        values: the rounds, [rounds, arms, subjects].
        unchanged: the gate of equal code.
        place: index of the slowed subject.
        margin: its margin in the gate of equal code; `None` if it had none.
        found: per slowdown, whether the subject was judged slower.
    """

    values: FloatArray
    unchanged: GateOutcome
    place: int
    margin: float | None
    found: dict[Slowdown, bool]


@dataclass(frozen=True)
class Detection:
    """How often a slowdown was found.

    Args:
        slowdown: by how much.
        found: rate over all gates.
        beyond: per factor in `FACTORS`, the rate over gates where the slowdown was at least that
            many times the margin of the case.
    """

    slowdown: Slowdown
    found: Rate
    beyond: dict[int, Rate]


@dataclass(frozen=True)
class Selfcheck:
    """The outcome of many simulated gates.

    Args:
        red: gates of equal code that would have failed a build, for whatever reason.
        slower: those of them that found some case slower.
        detections: per slowdown.
        margins: of all cases in all gates, as shares: quartiles with both ends.
        mean_rounds: mean number of rounds that a gate of equal code took.
        undecided: share of the cases of equal code without a verdict.
    """

    red: Rate
    slower: Rate
    detections: tuple[Detection, ...]
    margins: tuple[float, ...]
    mean_rounds: float
    undecided: float

    def worst(self, factor: int) -> Rate:
        """How often a slowdown by `factor` times the margin was found: the worse of two rates.

        One is over slowdowns by exactly that multiple, the other over all that reached it.
        """
        just = Slowdown(factor, of_margin=True)
        exact = [each.found for each in self.detections if each.slowdown == just]
        beyond = [each.beyond[factor] for each in self.detections]
        pooled = Rate(sum(rate.times for rate in beyond), sum(rate.trials for rate in beyond))
        rates = [rate for rate in (*exact, pooled) if rate.trials]
        return min(rates, key=lambda rate: rate.times / rate.trials, default=pooled)

    def promises(self) -> tuple[Promise, ...]:
        """What the gate promises, and whether it was kept; untried promises are not kept."""
        red = self.red
        kept = red.share is not None and red.share <= MOST_RED
        promises = [
            Promise(
                "red", f"equal code: at most {MOST_RED:.0%} of builds are red", spelled(red), kept
            )
        ]
        for factor, least in LEAST_FOUND.items():
            found = self.worst(factor)
            kept = found.share is not None and found.share >= least
            what = f"slower by {factor} x margin: at least {least:.0%} are found"
            promises.append(Promise(f"found_{factor}", what, spelled(found), kept))
        return tuple(promises)


def spelled(rate: Rate) -> str:
    """`0.20 % (0.03 to 1.12 %) of 1000`."""
    if rate.share is None or rate.interval is None:
        return "not tried"
    low, high = 100 * rate.interval.low, 100 * rate.interval.high
    return f"{100 * rate.share:.2f} % ({low:.2f} to {high:.2f} %) of {rate.trials}"


def selfcheck(
    population: Population,
    rules: Rules,
    gates: int,
    seed: int,
    looks: tuple[int, ...],
    progress: Progress,
) -> Selfcheck:
    """Runs gates of equal code, and the same with one case slowed.

    Args:
        population: where rounds come from.
        rules: of the gate.
        gates: how many of each.
        seed: for all random draws.
        looks: of the gate.
        progress: is told how many gates are done.

    Raises:
        UsageError: for no gates.
    """
    if gates < 1:
        raise UsageError(
            f"the number of gates is {gates}; expected 1 or more, and 1000 for rates to one percent"
        )
    generator = np.random.default_rng(seed)
    plan = GatePlan(population.subjects, looks=looks)
    trials = []
    progress.start(gates, unit="gates")
    for done in range(1, gates + 1):
        trials.append(try_gate(population, plan, rules, generator))
        progress.advance()
        if done % max(1, gates // 10) == 0 or done == gates:
            progress.phase("simulated")
    return summarise(trials)


def try_gate(
    population: Population,
    plan: GatePlan,
    rules: Rules,
    generator: np.random.Generator,
    slowdowns: Sequence[Slowdown] = SLOWDOWNS,
) -> Trial:
    """One draw of rounds through the gate, unchanged and with one case slowed at a time."""
    values = population.draw(generator, plan.looks[-1])
    unchanged = run_gate(ArraySource(plan.subjects, values), plan, rules)
    place = int(generator.integers(len(plan.subjects)))
    evidence = unchanged.judged.judgements[place].evidence
    margin = evidence.margin.share if evidence else None
    found = {}
    for slowdown in slowdowns:
        if margin is not None or not slowdown.of_margin:
            slowed = {plan.subjects[place]: slowdown.share(margin or 0.0)}
            found[slowdown] = is_found(values, plan, rules, slowed)
        else:
            found[slowdown] = False  # without a margin nothing can be found
    return Trial(values, unchanged, place, margin, found)


def is_found(
    values: FloatArray, plan: GatePlan, rules: Rules, slowed: dict[Subject, float]
) -> bool:
    """Whether a gate finds any of the subjects that were slowed to be so."""
    outcome = run_gate(ArraySource(plan.subjects, values, slowed), plan, rules)
    return any(
        judgement.verdict is Verdict.SLOWER
        for subject, judgement in zip(plan.subjects, outcome.judged.judgements, strict=True)
        if subject in slowed
    )


def summarise(trials: Sequence[Trial]) -> Selfcheck:
    """Rates over trials."""
    unchanged = [trial.unchanged for trial in trials]
    judgements = [each for outcome in unchanged for each in outcome.judged.judgements]
    margins = [each.evidence.margin.share for each in judgements if each.evidence]
    return Selfcheck(
        red=rate_of([exit_code(outcome.judged) is not ExitCode.OK for outcome in unchanged]),
        slower=rate_of([outcome.judged.count(Verdict.SLOWER) > 0 for outcome in unchanged]),
        detections=tuple(_detection(slowdown, trials) for slowdown in trials[0].found),
        margins=tuple(percentile(margins, at) for at in (0, 25, 50, 75, 100)) if margins else (),
        mean_rounds=sum(outcome.rounds for outcome in unchanged) / len(trials),
        undecided=sum(each.verdict is Verdict.INCONCLUSIVE for each in judgements)
        / len(judgements),
    )


def _detection(slowdown: Slowdown, trials: Sequence[Trial]) -> Detection:
    return Detection(
        slowdown,
        rate_of([trial.found[slowdown] for trial in trials]),
        {
            factor: rate_of(
                [
                    trial.found[slowdown]
                    for trial in trials
                    if _is_beyond(slowdown, trial.margin, factor)
                ]
            )
            for factor in FACTORS
        },
    )


def _is_beyond(slowdown: Slowdown, margin: float | None, factor: int) -> bool:
    """Whether a slowdown reaches `factor` times the margin, so that the gate should find it.

    If the margin is not known, only slowdowns given as a multiple of it can.
    """
    if margin is None:
        return slowdown.of_margin and slowdown.amount >= factor
    return slowdown.share(margin) >= factor * margin * (1 - _ROUNDING)
