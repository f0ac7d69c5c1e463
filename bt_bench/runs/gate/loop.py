"""The gate's loop: look at the rounds, and take more of them until every verdict holds.

It knows neither processes nor devices. Rounds come from a `RoundSource`, and all of them are kept.
The probability of a false alarm is divided among the looks, so looking several times does not
raise it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bt_bench.analysis import (
    Judged,
    Judgement,
    Labels,
    Ledger,
    Rules,
    Verdict,
    judge_rounds,
    overall_ratios,
)
from bt_bench.errors import UsageError
from bt_bench.results import GateRound, RoundSource, Subject

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
    judgements: tuple[Judgement, ...]

    def count(self, verdict: Verdict) -> int:
        """How many subjects have a verdict."""
        return sum(judgement.verdict is verdict for judgement in self.judgements)

    @property
    def open(self) -> int:
        """The number of subjects whose verdict more rounds could change."""
        return sum(judgement.is_open for judgement in self.judgements)

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
        judged: for formats and exit codes; a judgement per subject, in the order of the plan.
        rounds: how many rounds were taken.
        looks: how many times they were looked at.
    """

    judged: Judged
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
    labels = Labels(plan.base_label, plan.head_label)
    final: dict[Subject, Judgement] = {}
    alphas = plan.alphas(rules.alpha)
    for number, (rounds, alpha) in enumerate(zip(plan.looks, alphas, strict=True), start=1):
        ledger.add(source.take(rounds - ledger.rounds))
        at_look = judge_rounds(ledger, rules, thresholds or {}, alpha, labels)
        judgements = tuple(
            final.get(subject, judgement)
            for subject, judgement in zip(plan.subjects, at_look, strict=True)
        )
        final |= {
            subject: judgement
            for subject, judgement in zip(plan.subjects, judgements, strict=True)
            if judgement.is_final
        }
        ended = ledger.rounds < rounds or number == len(plan.looks)
        look = Look(ledger.rounds, ended, judgements)
        if on_look:
            on_look(look)
        if ended or not look.open:
            break
    return GateOutcome(
        judged=_judged(plan, rules, look.judgements, ledger.rounds),
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


def _judged(plan: GatePlan, rules: Rules, judgements: tuple[Judgement, ...], rounds: int) -> Judged:
    others = dict.fromkeys(judgement.other for judgement in judgements)
    return Judged(
        title=plan.title,
        base=plan.base_label,
        others=tuple(others),
        judgements=judgements,
        overall=tuple(overall_ratios(judgements)),
        facts=(
            f"{rounds} rounds of base, head and control, each in a fresh process, in random order.",
            f"{plan.head_label} is tested against {plan.base_label}, round by round. All metrics "
            "that it was asked for are one family: any false alarm in the whole gate has a "
            f"probability of {rules.alpha:g} at most.",
            "Ratios are trimmed means over rounds; intervals are those that the verdicts rest on.",
        ),
    )
