"""The gate's loop: look at the rounds, and take more of them until every verdict holds.

It knows neither processes nor devices. Rounds come from a `RoundSource`, and all of them are kept.
The probability of a false alarm is divided among the looks, so looking several times does not
raise it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bt_bench.analysis import (
    Finding,
    Judged,
    Judgement,
    Ledger,
    Overall,
    Rules,
    Verdict,
    geometric_mean,
    judge_rounds,
    ratio_of,
)
from bt_bench.errors import UsageError
from bt_bench.results import GateRound, RoundSource, Subject, metric_named

DEFAULT_LOOKS = (12, 20, 32)
MIN_ROUNDS, MAX_LOOK = 3, 1000
SPENDING_POWER = 2.0
"""Most of alpha is kept for the last look: margins are narrow only then."""


@dataclass(frozen=True)
class GatePlan:
    """What a gate judges, and when it looks.

    Args:
        subjects: what is judged, as one family.
        base_label: label of the base.
        head_label: label of the head, which is judged.
        looks: round counts after which verdicts are tried; the last is the maximum.
        title: what the gate compares, one line.

    Raises:
        UsageError: if looks do not ascend or begin below three rounds, or there is no subject.
    """

    subjects: tuple[Subject, ...]
    base_label: str = "base"
    head_label: str = "head"
    looks: tuple[int, ...] = DEFAULT_LOOKS
    title: str = "Gate"

    def __post_init__(self) -> None:
        ascending = all(before < after for before, after in pairwise(self.looks))
        if not self.looks or self.looks[0] < MIN_ROUNDS or not ascending:
            raise UsageError(
                f"looks after {', '.join(map(str, self.looks)) or 'no'} rounds; expected "
                f"ascending numbers from {MIN_ROUNDS} on, such as 12, 20, 32"
            )
        if not self.subjects:
            raise UsageError("nothing to judge: the gate has no metric of any case")
        if self.base_label == self.head_label:
            raise UsageError(f"base and head are both called {self.base_label!r}; rename one")

    def alphas(self, alpha: float) -> tuple[float, ...]:
        """The part of `alpha` that each look may spend; they add up to it.

        What is spent grows with the rounds to the power of `SPENDING_POWER`. Source: Lan and
        DeMets, "Discrete Sequential Boundaries for Clinical Trials", Biometrika 70 (1983), 659-663,
        with the spending function of Kim and DeMets, Biometrika 74 (1987), 149-154. By
        Bonferroni's inequality their sum bounds the error, however the looks depend on each other.
        """
        spent = [alpha * (look / self.looks[-1]) ** SPENDING_POWER for look in (0, *self.looks)]
        return tuple(after - before for before, after in pairwise(spent))


@dataclass(frozen=True)
class Look:
    """What is known after a look, for progress reports."""

    rounds: int
    last: bool
    findings: tuple[Finding, ...]

    def count(self, verdict: Verdict) -> int:
        """How many subjects have a verdict."""
        return sum(finding.verdict is verdict for finding in self.findings)

    @property
    def open(self) -> int:
        """The number of subjects whose verdict more rounds could change."""
        return sum(finding.open for finding in self.findings)

    @property
    def text(self) -> str:
        """As it is told: `after 12 rounds: 1 SLOWER, 59 SAME; 3 open`."""
        counts = [f"{self.count(verdict)} {verdict}" for verdict in Verdict if self.count(verdict)]
        rest = f"; {self.open} open" if self.open and not self.last else ""
        return f"after {self.rounds} rounds: {', '.join(counts)}{rest}"


@dataclass(frozen=True)
class GateOutcome:
    """The outcome of a gate.

    Args:
        judged: for formats and exit codes.
        findings: per subject, in the order of the plan.
        rounds: how many rounds were taken.
        looks: how many times they were looked at.
    """

    judged: Judged
    findings: tuple[Finding, ...]
    rounds: int
    looks: int


def run_gate(
    source: RoundSource,
    plan: GatePlan,
    rules: Rules,
    thresholds: Mapping[Subject, float] | None = None,
    on_look: Callable[[Look], None] | None = None,
) -> GateOutcome:
    """Takes rounds until every verdict holds, or the last look is over.

    A `SLOWER` or `FASTER` of any look is final; all others are judged anew at each look. A source
    that hands out fewer rounds than asked for has no more: that look is the last.

    Args:
        source: of rounds.
        plan: subjects and looks.
        rules: margin, alpha and correction.
        thresholds: margins of subjects that do not use that of the rules, as shares.
        on_look: is told what is known after each look.
    """
    ledger = Ledger(plan.subjects)
    final: dict[Subject, Finding] = {}
    alphas = plan.alphas(rules.alpha)
    for number, (rounds, alpha) in enumerate(zip(plan.looks, alphas, strict=True), start=1):
        ledger.add(source.take(rounds - ledger.rounds))
        findings = [
            final.get(finding.subject, finding)
            for finding in judge_rounds(ledger, rules, thresholds or {}, alpha)
        ]
        final |= {finding.subject: finding for finding in findings if finding.final}
        ended = ledger.rounds < rounds or number == len(plan.looks)
        look = Look(ledger.rounds, ended, tuple(findings))
        if on_look:
            on_look(look)
        if ended or not look.open:
            break
    return GateOutcome(
        judged=_judged(plan, rules, look.findings, ledger.rounds),
        findings=look.findings,
        rounds=ledger.rounds,
        looks=number,
    )


def replay(rounds: Sequence[GateRound]) -> RoundSource:
    """A source that hands out recorded rounds in their order."""
    return _Replay(list(rounds))


class _Replay:
    def __init__(self, rounds: list[GateRound]) -> None:
        self._rounds = rounds

    def take(self, count: int) -> list[GateRound]:
        """The next rounds; fewer at the end."""
        taken, self._rounds = self._rounds[:count], self._rounds[count:]
        return taken


def _judged(plan: GatePlan, rules: Rules, findings: Iterable[Finding], rounds: int) -> Judged:
    judgements = tuple(_judgement(plan, finding) for finding in findings)
    others = dict.fromkeys(judgement.other for judgement in judgements)
    return Judged(
        title=plan.title,
        base=plan.base_label,
        others=tuple(others),
        judgements=judgements,
        overall=_overall(judgements),
        facts=(
            f"{rounds} rounds of base, head and control, each in a fresh process, in random order.",
            f"{plan.head_label} is tested against {plan.base_label}, round by round; any false "
            f"alarm in the whole gate has a probability of {rules.alpha:g} at most.",
            "Ratios are trimmed means over rounds; intervals are those that the verdicts rest on.",
        ),
    )


def _judgement(plan: GatePlan, finding: Finding) -> Judgement:
    subject, estimate = finding.subject, finding.estimate
    interval = estimate.interval(1 - 2 * finding.alpha) if estimate else None
    return Judgement(
        operation=subject.operation,
        case=subject.case,
        metric=subject.metric,
        unit=metric_named(subject.metric).unit,
        base=f"{subject.variant}@{plan.base_label}",
        other=f"{subject.variant}@{plan.head_label}",
        base_value=finding.base_value,
        other_value=finding.other_value,
        ratio=ratio_of(estimate.location) if estimate else None,
        low=ratio_of(interval.low) if interval else None,
        high=ratio_of(interval.high) if interval else None,
        verdict=finding.verdict,
        cause=finding.cause,
        detail=finding.detail,
        evidence=finding.evidence,
    )


def _overall(judgements: Sequence[Judgement]) -> tuple[Overall, ...]:
    """One per metric and variant, over the cases that have a ratio."""
    groups = Counter((j.metric, j.base, j.other) for j in judgements if j.ratio is not None)
    overall = []
    for metric, base, other in groups:
        ratios = [
            j.ratio
            for j in judgements
            if (j.metric, j.base, j.other) == (metric, base, other) and j.ratio is not None
        ]
        mean = geometric_mean(ratios)
        low, high = (mean.interval.low, mean.interval.high) if mean.interval else (None, None)
        overall.append(Overall(metric, base, other, len(ratios), mean.ratio, low, high))
    return tuple(overall)
