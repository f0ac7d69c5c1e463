"""Rates behind the gate's promises: gates of equal code, and of code slowed by a known amount.

Rounds come from a population: a recording that is drawn from again and again, or a made-up machine.
They go through the same `run_gate` as a live gate's rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from bt_bench.analysis import (
    DEFAULT_DETECT,
    Interval,
    Judgement,
    Promise,
    Rules,
    Sought,
    Verdict,
    exit_code,
    percentile,
    wilson_interval,
)
from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.results import FloatArray, SeriesKey
from bt_bench.runs.gate.loop import DEFAULT_LOOKS, GateOutcome, GatePlan, run_gate
from bt_bench.runs.progress import Progress
from bt_bench.runs.selfcheck.resampled import ArraySource, Population

FACTORS = (2, 3)

MOST_RED = 0.01
LEAST_FOUND = {2: 0.95, 3: 0.99}  # of figures measured apart, by multiple of their margin
LEAST_ASKED = {0.05: 0.99, 0.03: 0.95}  # of the others, by share
LEAST_SAID = 0.98  # of slowdowns by the gate's own detection limit at 99 %
MOST_MARGIN, LONG_US = 0.025, 5.0  # the median margin of figures that last longer

PROMISED = ("host_us", "gpu_us", "stage_us")
"""The metrics that a gate times by default; the promises are about them."""

_ROUNDING = 1e-9  # tolerance for comparing multiples of a margin


class SlowdownSize(StrEnum):
    """Measures of the size of a slowdown."""

    SHARE = "share"  # of the figure
    ASKED = "asked"  # the same, but at least the microseconds that a gate is to find
    OF_MARGIN = "of_margin"  # a multiple of the margin that the gate of equal code had
    SAID = "said"  # the detection limit at 99 % that the gate of equal code reported


@dataclass(frozen=True)
class Slowdown:
    """A slowdown of one figure."""

    amount: float
    kind: SlowdownSize = SlowdownSize.SHARE

    @property
    def key(self) -> str:
        """Its name in JSON, which stays as it was."""
        said = self.kind is SlowdownSize.SAID
        return "what the gate said it finds" if said else self.label.replace("µs", "us")

    @property
    def label(self) -> str:
        """Its name in tables: `+3 %`, `3 % or 0.1 µs`, `2 x margin`."""
        if self.kind is SlowdownSize.OF_MARGIN:
            return f"{self.amount:g} x margin"
        if self.kind is SlowdownSize.SAID:
            return "the gate's own detection limit"
        if self.kind is SlowdownSize.ASKED:
            return f"{100 * self.amount:g} % or {Sought(self.amount).floor_us:.3g} µs"
        return f"+{100 * self.amount:g} %"

    def share(self, judgement: Judgement) -> float | None:
        """Return the slowdown as a share of the figure's time, from its judgement on equal code.

        `None` without the evidence that its size depends on.
        """
        evidence = judgement.evidence
        if self.kind is SlowdownSize.SHARE:
            return self.amount
        if evidence is None:
            return None
        if self.kind is SlowdownSize.ASKED:
            return Sought(self.amount, evidence.margin.configured).of(judgement)
        if self.kind is SlowdownSize.SAID:
            return evidence.detectable
        return self.amount * evidence.needed


SAID = Slowdown(1, SlowdownSize.SAID)

PAIRED_SLOWDOWNS = (
    *(Slowdown(share) for share in (0.01, 0.02)),
    *(Slowdown(share, SlowdownSize.ASKED) for share in sorted(LEAST_ASKED)),
    Slowdown(0.1),
    SAID,
)
"""Slowdowns of figures whose arms share a process."""

APART_SLOWDOWNS = (
    *(Slowdown(share) for share in (0.01, 0.02, 0.03, 0.05, 0.10)),
    *(Slowdown(factor, SlowdownSize.OF_MARGIN) for factor in FACTORS),
)
"""Slowdowns of figures that were measured apart."""


@dataclass(frozen=True)
class Rate:
    """The rate of an event among trials."""

    times: int
    trials: int

    @property
    def share(self) -> float | None:
        """Share of the trials; `None` without trials."""
        return self.times / self.trials if self.trials else None

    @property
    def interval(self) -> Interval | None:
        """Wilson's interval at 95 %; `None` without trials."""
        return wilson_interval(self.times, self.trials) if self.trials else None

    def reaches(self, least: float) -> bool:
        """Return whether the share is known, and at least as large."""
        return self.share is not None and self.share >= least


def rate_of(hits: Sequence[bool]) -> Rate:
    """Return the rate of true values."""
    return Rate(sum(hits), len(hits))


@dataclass(frozen=True)
class SelfcheckDraw:
    """One draw of rounds, judged as it is and with one figure slowed.

    Args:
        values: the rounds, [rounds, arms, subjects].
        unchanged: the gate of equal code.
        subject: the slowed figure.
        judgement: on it, in the gate of equal code.
        apart: whether it was measured apart.
        found: per slowdown, whether it was judged slower.
    """

    values: FloatArray
    unchanged: GateOutcome
    subject: SeriesKey
    judgement: Judgement
    apart: bool
    found: dict[Slowdown, bool]


@dataclass(frozen=True)
class Detection:
    """The detection rates of a slowdown.

    Args:
        slowdown: the slowdown.
        apart: whether the figures were measured apart.
        found: rate over all gates; for figures that share a process, only over the metrics that
            promises are about, if there are any.
        able: the same over gates that reported, for equal code, to find it with 99 %.
        beyond: per factor in `FACTORS`, the rate over gates where the slowdown was at least that
            many times the margin of the figure.
        metrics: rates by metric, over all gates.
    """

    slowdown: Slowdown
    apart: bool
    found: Rate
    able: Rate
    beyond: dict[int, Rate]
    metrics: dict[str, Rate] = field(default_factory=dict)


@dataclass(frozen=True)
class Selfcheck:
    """The outcome of many simulated gates.

    Args:
        red: gates of equal code that would have failed a build, for whatever reason.
        slower: gates of equal code that found some figure slower.
        detections: per slowdown, and whether measured apart.
        margins: of all figures in all gates, as shares: quartiles with both ends.
        mean_rounds: mean number of rounds that a gate of equal code took.
        undecided: share of the figures of equal code without a verdict.
        long_margin: median margin of the figures that share a process and last longer than
            `LONG_US`; `None` without any.
        short: gates of equal code that reported that they could have missed the slowdown to find.
    """

    red: Rate
    slower: Rate
    detections: tuple[Detection, ...]
    margins: tuple[float, ...]
    mean_rounds: float
    undecided: float
    long_margin: float | None = None
    short: Rate = Rate(0, 0)

    def worst(self, factor: int) -> Rate:
        """Return the worse of two detection rates for slowdowns by `factor` times the margin.

        Both are about figures that were measured apart. One is over slowdowns by exactly that
        multiple, the other over all that reached it.
        """
        just = Slowdown(factor, SlowdownSize.OF_MARGIN)
        apart = [each for each in self.detections if each.apart]
        exact = [each.found for each in apart if each.slowdown == just]
        beyond = [each.beyond[factor] for each in apart]
        pooled = Rate(sum(rate.times for rate in beyond), sum(rate.trials for rate in beyond))
        rates = [rate for rate in (*exact, pooled) if rate.trials]
        return min(rates, key=lambda rate: rate.times / rate.trials, default=pooled)

    def promises(self) -> tuple[Promise, ...]:
        """Return the gate's promises, and whether each was kept; untried ones are not kept."""
        kept = self.red.share is not None and self.red.share <= MOST_RED
        what = f"equal code: at most {MOST_RED:.0%} of builds are red"
        promises = [Promise("red", what, spelled(self.red), kept)]
        ways = {each.apart for each in self.detections} or {False}
        if False in ways:
            promises += self._of_paired()
        if True in ways:
            promises += self._of_apart()
        return tuple(promises)

    def _of_paired(self) -> Iterator[Promise]:
        found = {each.slowdown: each for each in self.detections if not each.apart}
        wanted = [
            *(
                (f"found_{100 * share:g}", Slowdown(share, SlowdownSize.ASKED))
                for share in LEAST_ASKED
            ),
            ("found_said", SAID),
        ]
        for name, slowdown in wanted:
            least = LEAST_ASKED.get(slowdown.amount, LEAST_SAID)
            what = f"slower by {slowdown.label}: at least {least:.0%} are found"
            detection = found.get(slowdown)
            rate = detection.found if detection else Rate(0, 0)
            text = spelled(rate)
            if detection and slowdown.kind is SlowdownSize.ASKED:
                text += f"; of gates that said they would: {spelled(detection.able)}"
            yield Promise(name, what, text, rate.reaches(least))
        margin = self.long_margin
        yield Promise(
            "margin",
            f"figures above {LONG_US:g} µs: a median margin of at most {_percent(MOST_MARGIN)}",
            "not tried" if margin is None else _percent(margin),
            margin is not None and margin <= MOST_MARGIN,
        )

    def _of_apart(self) -> Iterator[Promise]:
        for factor, least in LEAST_FOUND.items():
            found = self.worst(factor)
            what = f"measured apart, slower by {factor} x margin: at least {least:.0%} are found"
            yield Promise(f"found_{factor}_margins", what, spelled(found), found.reaches(least))


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def spelled(rate: Rate) -> str:
    """Format a rate, such as `0.20 % (0.03 to 1.12 %) of 1000`."""
    if rate.share is None or rate.interval is None:
        return "not tried"
    low, high = 100 * rate.interval.low, 100 * rate.interval.high
    return f"{100 * rate.share:.2f} % ({low:.2f} to {high:.2f} %) of {rate.trials}"


def plan_for(
    population: Population, looks: tuple[int, ...] = DEFAULT_LOOKS, detect: float = DEFAULT_DETECT
) -> GatePlan:
    """Return the plan of the gates of a population."""
    return GatePlan(population.subjects, looks=looks, apart=population.apart, detect=detect)


def selfcheck(
    population: Population,
    rules: Rules,
    gates: int,
    seed: int,
    plan: GatePlan,
    progress: Progress,
) -> Selfcheck:
    """Run gates of equal code, and the same with one figure slowed.

    Args:
        population: source of the rounds.
        rules: rules of the gate.
        gates: number of gates of each kind.
        seed: seed for all random draws.
        plan: plan of the gate, see `plan_for`.
        progress: receives the number of gates done.

    Raises:
        UsageError: for no gates.
    """
    if gates < 1:
        raise UsageError(
            f"the number of gates is {gates}; expected 1 or more, and 1000 for rates to one percent"
        )
    generator = np.random.default_rng(seed)
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
    slowdowns: Sequence[Slowdown] | None = None,
) -> SelfcheckDraw:
    """Run one draw of rounds through the gate, unchanged and with one figure slowed at a time.

    Args:
        population: source of the rounds.
        plan: plan of the gate.
        rules: rules of the gate.
        generator: draws the rounds and the figure.
        slowdowns: the slowdowns to try; `None`: those for the way the figure was measured.
    """
    values = population.draw(generator, plan.most_rounds)
    unchanged = run_gate(ArraySource(plan.subjects, values), plan, rules)
    place = int(generator.integers(len(plan.subjects)))
    subject, judgement = plan.subjects[place], unchanged.judged.judgements[place]
    apart = subject.variant in plan.apart
    if slowdowns is None:
        slowdowns = APART_SLOWDOWNS if apart else PAIRED_SLOWDOWNS
    found = {}
    for slowdown in slowdowns:
        share = slowdown.share(judgement)
        # Without a margin nothing can be found.
        found[slowdown] = share is not None and is_found(values, plan, rules, {subject: share})
    return SelfcheckDraw(values, unchanged, subject, judgement, apart, found)


def is_found(
    values: FloatArray, plan: GatePlan, rules: Rules, slowed: dict[SeriesKey, float]
) -> bool:
    """Return whether a gate finds any of the slowed subjects to be slower."""
    outcome = run_gate(ArraySource(plan.subjects, values, slowed), plan, rules)
    return any(
        judgement.verdict is Verdict.SLOWER
        for subject, judgement in zip(plan.subjects, outcome.judged.judgements, strict=True)
        if subject in slowed
    )


def summarise(trials: Sequence[SelfcheckDraw]) -> Selfcheck:
    """Return the rates over trials."""
    unchanged = [trial.unchanged for trial in trials]
    judgements = [each for outcome in unchanged for each in outcome.judged.judgements]
    margins = [each.evidence.needed for each in judgements if each.evidence]
    powers = [outcome.judged.power for outcome in unchanged]
    tried = dict.fromkeys((slowdown, trial.apart) for trial in trials for slowdown in trial.found)
    return Selfcheck(
        red=rate_of([exit_code(outcome.judged) is not ExitCode.OK for outcome in unchanged]),
        slower=rate_of([outcome.judged.count(Verdict.SLOWER) > 0 for outcome in unchanged]),
        detections=tuple(
            _detection(slowdown, apart, [each for each in trials if each.apart == apart])
            for slowdown, apart in tried
        ),
        margins=tuple(percentile(margins, at) for at in (0, 25, 50, 75, 100)) if margins else (),
        mean_rounds=sum(outcome.rounds for outcome in unchanged) / len(trials),
        undecided=sum(each.verdict is Verdict.INCONCLUSIVE for each in judgements)
        / len(judgements),
        long_margin=_long_margin(trials),
        short=rate_of([power is not None and power.falls_short for power in powers]),
    )


def _long_margin(trials: Sequence[SelfcheckDraw]) -> float | None:
    margins = [
        each.evidence.needed
        for trial in trials
        for each in trial.unchanged.judged.judgements
        if each.evidence
        and (each.base_value or 0.0) > LONG_US
        and each.other.partition("@")[0] not in trial.unchanged.apart
    ]
    return percentile(margins, 50) if margins else None


def _detection(slowdown: Slowdown, apart: bool, trials: Sequence[SelfcheckDraw]) -> Detection:
    trials = [trial for trial in trials if slowdown in trial.found]
    metrics = dict.fromkeys(sorted(trial.subject.metric for trial in trials))
    promised = set(metrics) & set(PROMISED) or set(metrics)
    counted = [trial for trial in trials if apart or trial.subject.metric in promised]

    def rate(among: Iterable[SelfcheckDraw]) -> Rate:
        return rate_of([trial.found[slowdown] for trial in among])

    return Detection(
        slowdown,
        apart,
        rate(counted),
        rate(trial for trial in counted if _said(slowdown, trial)),
        {f: rate(trial for trial in counted if _is_beyond(slowdown, trial, f)) for f in FACTORS},
        {m: rate(trial for trial in trials if trial.subject.metric == m) for m in metrics},
    )


def _said(slowdown: Slowdown, trial: SelfcheckDraw) -> bool:
    """Return whether the gate of equal code reported that it would find such a slowdown."""
    share, evidence = slowdown.share(trial.judgement), trial.judgement.evidence
    if share is None or evidence is None:
        return False
    return evidence.detectable <= share * (1 + _ROUNDING)


def _is_beyond(slowdown: Slowdown, trial: SelfcheckDraw, factor: int) -> bool:
    """Return whether a slowdown reaches `factor` times the margin, so the gate should find it.

    Without a known margin, only slowdowns given as a multiple of it can reach it.
    """
    share, evidence = slowdown.share(trial.judgement), trial.judgement.evidence
    if share is None or evidence is None:
        return slowdown.kind is SlowdownSize.OF_MARGIN and slowdown.amount >= factor
    return share >= factor * evidence.needed * (1 - _ROUNDING)
