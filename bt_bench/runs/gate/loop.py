"""The gate's loop: looks at the rounds, and takes more of them until every verdict holds.

It knows neither processes nor devices. Rounds come from a `RoundSource`, and all of them are kept.
The probability of a false alarm is divided among the looks, so looking several times does not
raise it. If noise would hide a slowdown that is to be found, there is one more look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from bt_bench.analysis import (
    DEFAULT_DETECT,
    Judged,
    Judgement,
    Labels,
    Ledger,
    Power,
    Rules,
    Sought,
    Verdict,
    forecast,
    is_short,
    judge_rounds,
    overall_ratios,
    power_of,
    rounds_needed,
)
from bt_bench.base import format_share
from bt_bench.base.errors import UsageError
from bt_bench.results import FloatArray, RoundSource, SeriesKey

DEFAULT_LOOKS = (12, 32)
MIN_ROUNDS, MAX_LOOK = 3, 1000
SPENDING_POWER = 2.0
"""Most of alpha is kept for the last look: margins are narrow only then."""

EXTRA_ALPHA = 0.2
"""The share of alpha that is kept for one more look where noise calls for it."""

LIMIT_FACTOR = 2
"""By default that look has at most this many times the rounds of the last planned one."""

SURPLUS = 1.1
"""Factor on the computed number of rounds, since the noise behind it is an estimate too."""

ROUNDS_STEP = 4


@dataclass(frozen=True)
class GatePlan:
    """The subjects and looks of a gate.

    Args:
        subjects: the subjects to judge, as one family.
        base_label: label of the base.
        head_label: label of the head, which is judged.
        looks: round counts after which verdicts are tried.
        title: one line on the comparison.
        apart: variants whose arms are measured in a process each, with the reason.
        detect: the slowdown to find in any figure, as a share.
        limit: the most rounds, if noise calls for more than the last look has; `None` for twice
            as many. There is no such look if it equals the last one.
        share: of the family that the subjects are, where shards judge the others; see `decide`.

    Raises:
        UsageError: if looks do not ascend or begin below three rounds, if the limit is below the
            last one, if the slowdown to find is not a share above zero, if there is no subject, or
            if both labels are equal.
    """

    subjects: tuple[SeriesKey, ...]
    base_label: str = "base"
    head_label: str = "head"
    looks: tuple[int, ...] = DEFAULT_LOOKS
    title: str = "Gate"
    apart: Mapping[str, str] = field(default_factory=dict)
    detect: float = DEFAULT_DETECT
    limit: int | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        ascending = all(before < after for before, after in pairwise(self.looks))
        if not self.looks or self.looks[0] < MIN_ROUNDS or not ascending:
            raise UsageError(
                f"looks after {', '.join(map(str, self.looks)) or 'no'} rounds; expected "
                f"ascending numbers from {MIN_ROUNDS} on, such as 12, 32"
            )
        if self.limit is not None and self.limit < self.looks[-1]:
            raise UsageError(
                f"at most {self.limit} rounds, but the last look is after {self.looks[-1]}; "
                "expected as many or more"
            )
        if not 0 < self.detect < math.inf:
            raise UsageError(
                f"the slowdown to find is {self.detect:g}; expected more than 0, such as 0.05 for "
                "5 %"
            )
        if not self.subjects:
            raise UsageError("nothing to judge: the gate has no metric of any case")
        if self.base_label == self.head_label:
            raise UsageError(f"base and head are both called {self.base_label!r}; rename one")

    @property
    def most_rounds(self) -> int:
        """The most rounds that the gate ever takes."""
        return LIMIT_FACTOR * self.looks[-1] if self.limit is None else self.limit

    def alphas(self, alpha: float) -> tuple[float, ...]:
        """Return the part of `alpha` for each planned look, and last the part for one more look.

        All parts add up to alpha. By Bonferroni's inequality the sum bounds the error, however the
        looks depend on each other, and whatever decides whether there is one more. The planned
        looks share the rest of alpha: the part spent grows with the rounds to the power of
        `SPENDING_POWER`. Source: Lan and DeMets, "Discrete Sequential Boundaries for Clinical
        Trials", Biometrika 70 (1983), 659-663, with the spending function of Kim and DeMets,
        Biometrika 74 (1987), 149-154.
        """
        kept = EXTRA_ALPHA if self.most_rounds > self.looks[-1] else 0.0
        planned = alpha * (1 - kept)
        spent = [planned * (look / self.looks[-1]) ** SPENDING_POWER for look in (0, *self.looks)]
        return (*(after - before for before, after in pairwise(spent)), alpha * kept)


@dataclass(frozen=True)
class Look:
    """The state after a look, for progress reports.

    Args:
        rounds: number of rounds so far.
        last: whether it is the last look.
        judgements: on all subjects.
        forecast: a clause on the slowdown that the gate will find at its last look, or empty.
    """

    rounds: int
    last: bool
    judgements: tuple[Judgement, ...]
    forecast: str = ""

    def count(self, verdict: Verdict) -> int:
        """Return how many subjects have a verdict."""
        return sum(judgement.verdict is verdict for judgement in self.judgements)

    @property
    def open(self) -> int:
        """The number of subjects whose verdict more rounds could change."""
        return sum(judgement.is_open for judgement in self.judgements)

    @property
    def text(self) -> str:
        """One line, such as `after 12 rounds: 1 SLOWER, 56 SAME, 3 INCONCLUSIVE; 3 open`."""
        counts = [f"{self.count(verdict)} {verdict}" for verdict in Verdict if self.count(verdict)]
        rest = f"; {self.open} open" if self.open and not self.last else ""
        forecast = f"; {self.forecast}" if self.forecast else ""
        return f"after {self.rounds} rounds: {', '.join(counts)}{rest}{forecast}"


@dataclass(frozen=True)
class GateOutcome:
    """The outcome of a gate.

    Args:
        judged: for formats and exit codes; a judgement per subject, in the order of the plan.
        rounds: number of rounds taken.
        looks: number of looks.
        apart: variants that were measured apart, with the reason.
    """

    judged: Judged
    rounds: int
    looks: int
    apart: Mapping[str, str] = field(default_factory=dict)


def run_gate(
    source: RoundSource,
    plan: GatePlan,
    rules: Rules,
    thresholds: Mapping[SeriesKey, float] | None = None,
    on_look: Callable[[Look], None] | None = None,
    disturbances: Callable[[], Sequence[str]] = tuple,
) -> GateOutcome:
    """Take rounds until every verdict holds, or the last look is over.

    A `SLOWER` or `FASTER` of any look is final; all others are judged anew at each look. If a
    source hands out fewer rounds than asked for, it has no more: that look is the last. After the
    last planned look there is one more if noise may hide a slowdown that is to be found.

    Args:
        source: source of rounds.
        plan: subjects and looks.
        rules: margin, alpha and correction.
        thresholds: margins of subjects that do not use the rules' margin, as shares.
        on_look: called after each look.
        disturbances: called at the end; returns other disturbances of the machine, a clause each,
            such as `another process was on the GPU in 3 of 24 rounds`.
    """
    ledger = Ledger(plan.subjects)
    labels = Labels(plan.base_label, plan.head_label)
    asked = Sought(plan.detect, rules.margin)
    final: dict[SeriesKey, Judgement] = {}
    *alphas, extra_alpha = plan.alphas(rules.alpha)
    looks = list(zip(plan.looks, alphas, strict=True))
    number, ended = 0, False
    while not ended:
        rounds, alpha = looks[number]
        number += 1
        ledger.add(source.take(rounds - ledger.rounds))
        at_look = judge_rounds(
            ledger, rules, thresholds or {}, alpha, labels, plan.apart, plan.share
        )
        judgements = tuple(
            final.get(subject, judgement)
            for subject, judgement in zip(plan.subjects, at_look, strict=True)
        )
        final |= {
            subject: judgement
            for subject, judgement in zip(plan.subjects, judgements, strict=True)
            if judgement.is_final
        }
        exhausted = ledger.rounds < rounds
        if number == len(plan.looks) and not exhausted:
            more = more_rounds(plan, judgements, asked, extra_alpha)
            looks += [(more, extra_alpha)] if more else []
        is_open = any(judgement.is_open for judgement in judgements)
        ended = exhausted or number == len(looks) or not is_open
        forecast = "" if ended else _forecast(plan, judgements, asked, looks[number:])
        look = Look(ledger.rounds, ended, judgements, forecast)
        if on_look:
            on_look(look)
    power = power_of(judgements, asked, _changes(ledger, plan), plan.apart, disturbances())
    return GateOutcome(
        judged=_judged(plan, rules, look.judgements, ledger.rounds, power),
        rounds=ledger.rounds,
        looks=number,
        apart=plan.apart,
    )


def more_rounds(
    plan: GatePlan, judgements: Sequence[Judgement], asked: Sought, alpha: float
) -> int | None:
    """Return the round count of one more look, to find the wanted slowdown; `None` for no look.

    Figures that were measured apart do not call for it, since no affordable number of rounds makes
    up for how much processes differ; nor do figures that more rounds do not help.

    Args:
        plan: plan of the gate, with all of its looks over.
        judgements: judgements of the last look.
        asked: the slowdown to find.
        alpha: the part of alpha for that look; 0 for no such look.
    """
    if not alpha:
        return None
    needs = []
    for subject, judgement in zip(plan.subjects, judgements, strict=True):
        evidence = judgement.evidence
        if evidence and subject.variant not in plan.apart and is_short(judgement, asked):
            times = rounds_needed(evidence, asked.of(judgement), alpha)
            needs.append(times * SURPLUS * plan.looks[-1])
    finite = [each for each in needs if math.isfinite(each)]
    if not finite:
        return None
    steps = math.ceil(min(max(finite), plan.most_rounds) / ROUNDS_STEP)
    wanted = max(steps * ROUNDS_STEP, plan.looks[-1] + ROUNDS_STEP)
    return min(wanted, plan.most_rounds)


def _forecast(
    plan: GatePlan,
    judgements: Sequence[Judgement],
    asked: Sought,
    ahead: Sequence[tuple[int, float]],
) -> str:
    """Describe the slowdown that the looks ahead will find."""
    rounds, alpha = ahead[-1]
    found = []
    for subject, judgement in zip(plan.subjects, judgements, strict=True):
        if (evidence := judgement.evidence) and not judgement.is_final:
            times = rounds / evidence.observations
            share = forecast(evidence, times, alpha, wider=subject.variant in plan.apart)
            found.append((share / asked.of(judgement), share))
    if not found:
        return ""
    middle = float(np.median([share for _, share in found]))
    _, most = max(found)
    return (
        f"by round {rounds} it should find a slowdown of {format_share(middle)} in half of the "
        f"figures, and of {format_share(most)} in the noisiest"
    )


def _changes(ledger: Ledger, plan: GatePlan) -> FloatArray | None:
    paired = [subject for subject in plan.subjects if subject.variant not in plan.apart]
    return ledger.changes(paired) if paired else None


def _judged(
    plan: GatePlan,
    rules: Rules,
    judgements: tuple[Judgement, ...],
    rounds: int,
    power: Power | None,
) -> Judged:
    others = dict.fromkeys(judgement.other for judgement in judgements)
    return Judged(
        title=plan.title,
        base=plan.base_label,
        others=tuple(others),
        judgements=judgements,
        overall=tuple(overall_ratios(judgements)),
        facts=(
            *([power.sentence] if power and not power.falls_short else []),
            *_how_measured(plan, rounds),
            f"{plan.head_label} is tested against {plan.base_label}, round by round. All metrics "
            f"that it was asked for{', of all shards,' * (plan.share < 1)} are one family: any "
            f"false alarm in the whole gate has a probability of {rules.alpha:g} at most.",
            "Ratios are trimmed means over rounds; intervals are those that the verdicts rest on.",
        ),
        power=power,
    )


def _how_measured(plan: GatePlan, rounds: int) -> Iterator[str]:
    variants = dict.fromkeys(subject.variant for subject in plan.subjects)
    if any(variant not in plan.apart for variant in variants):
        yield (
            f"{rounds} rounds, each a fresh process in which base, head and control take turns; "
            "the head is compared with the mean of both others."
        )
    for variant in variants:
        if variant in plan.apart:
            yield (
                f"{rounds} rounds of {variant} were measured apart, base, head and control in a "
                f"process each, so its intervals are wider: {plan.apart[variant]}."
            )
