"""The types of a comparison's conclusions, which `deciding` fills and the formats print.

A judgement is about one metric of one case. It always gives its reason and carries the numbers that
it was derived from, so it can be checked. If something could not be judged, it gets a judgement as
well, so nothing disappears.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from bt_bench.base.names import Operation


class Verdict(StrEnum):
    """The conclusion on a metric of a case."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"  # shown to differ by less than the margin; no sign of a difference is too little
    INCONCLUSIVE = "INCONCLUSIVE"
    MISSING = "MISSING"  # on one side only
    INVALID = "INVALID"  # measured, but not credible


WORST_FIRST = (
    Verdict.SLOWER,
    Verdict.MISSING,
    Verdict.INVALID,
    Verdict.INCONCLUSIVE,
    Verdict.FASTER,
    Verdict.SAME,
)
"""Verdicts by importance, which is the order of exit codes."""


class Cause(StrEnum):
    """The reason for a verdict."""

    BEYOND_MARGIN = "beyond_margin"  # FASTER, SLOWER: by more than the margin
    WITHIN_MARGIN = "within_margin"  # SAME: within the margin, noise excluded
    EQUAL_CODE = "equal_code"  # SAME: all files of both revisions are equal, and none was built
    EXACT = "exact"  # a count or a size, compared without statistics
    WIDE_INTERVAL = "wide_interval"  # INCONCLUSIVE: reaches from within the margin to beyond it
    TOO_FEW = "too_few"  # INCONCLUSIVE: too few for an interval; INVALID if they stay too few
    NO_CASE = "no_case"  # MISSING: one side lacks the case
    NO_METRIC = "no_metric"  # MISSING: one side lacks the metric
    FAILED = "failed"  # INVALID: the case failed on one side
    INSUFFICIENT = "insufficient"  # INVALID: too few rounds of the case count
    METHODS_DISAGREE = "methods_disagree"  # INVALID: a second method contradicts the device time
    NOT_POSITIVE = "not_positive"  # INVALID: a time of zero has no ratio
    NO_VARIANCE = "no_variance"  # INVALID: a fine clock gave the same value every time
    UNIT_DIFFERS = "unit_differs"  # INVALID
    IMPOSSIBLE = "impossible"  # INVALID: no clock can have measured it, or numbers cannot hold it


LOST_FROM_CONFIG = "the base's config has it, but the head's does not"
"""The reason for `MISSING` when a case is only in the base's config."""


@dataclass(frozen=True)
class Margin:
    """The margin of a metric: a change within it counts as none, as a share of the base.

    It defines which changes matter. The noise of the figures is no part of it: noise widens the
    interval.

    Args:
        configured: the requested threshold (0.02 for 2 %).
        floor: differences too small for any method.
    """

    configured: float
    floor: float

    @cached_property
    def share(self) -> float:
        """Return the margin: the larger of its parts."""
        return max(self.configured, self.floor)

    @property
    def binds(self) -> str:
        """Return the name of the larger part: `configured` or `floor`."""
        return "configured" if self.configured >= self.floor else "floor"

    @cached_property
    def logs(self) -> tuple[float, float]:
        """Return both ends on the log scale; the lower one is infinite from a margin of 1 on."""
        low = math.log1p(-self.share) if self.share < 1 else -math.inf
        return low, math.log1p(self.share)


@dataclass(frozen=True)
class Systematic:
    """The systematic error of an estimate, which its standard error does not show.

    Args:
        copies: three times the difference of unchanged code, as a share; `None` without a control.
        slowed: by how much the host, or another GPU, may have made the other side slower between
            two runs, on the log scale.
        sped: by how much it may have made it faster, likewise.
    """

    copies: float | None = None
    slowed: float = 0.0
    sped: float = 0.0

    def reach(self, margin: Margin) -> tuple[float, float]:
        """Return how far the truth may lie below and above the estimate, on the log scale.

        The difference of copies counts only where it exceeds the margin, since nothing within the
        margin matters.
        """
        _, end = margin.logs
        copies = max(0.0, math.log1p(self.copies or 0.0) - end)
        return copies + self.slowed, copies + self.sped


NO_SYSTEMATIC = Systematic()
"""No known error beyond the standard error."""


@dataclass(frozen=True)
class Evidence:
    """The numbers behind one verdict, on the scale of the natural logarithm of the ratio.

    The interval and the margin alone determine the verdict, see `deciding.verdict_on`.

    Args:
        observations: how many count as independent: rounds, or clusters of them.
        estimate: location of the log ratios, other against base.
        error: standard error of the estimate.
        degrees: degrees of freedom of its t distribution.
        margin: by how much the sides may differ.
        systematic: by how much the estimate may be off beyond its standard error.
        p_slower: probability of an estimate this large if the other were slower by just the margin.
        p_faster: the same for faster.
        adjusted_slower: `p_slower` corrected for all tests of the family.
        adjusted_faster: the same for faster.
        alpha: the largest adjusted probability that is significant, at this look.
        tests: size of the family.
        log_low: lower end of the interval that the verdict rests on: at the corrected level of the
            one-sided test on its side; for `SAME`, at alpha.
        log_high: upper end, likewise.
        confidence: of the interval.
        detectable: the detection limit: the smallest slowdown that would have been found with 99 %,
            as a share.
    """

    observations: int
    estimate: float
    error: float
    degrees: int
    margin: Margin
    systematic: Systematic
    p_slower: float
    p_faster: float
    adjusted_slower: float
    adjusted_faster: float
    alpha: float
    tests: int
    log_low: float
    log_high: float
    confidence: float
    detectable: float

    @property
    def needed(self) -> float:
        """Return the slowdown that an estimate without error would have to exceed, as a share."""
        (_, end), (below, _) = self.margin.logs, self.systematic.reach(self.margin)
        return math.expm1(end + below)


_WORDS_OF_COUNTS = {Verdict.SLOWER: "MORE", Verdict.FASTER: "FEWER"}


@dataclass(frozen=True)
class Judgement:
    """The verdict on one metric of one case.

    Args:
        operation: the operation of the case.
        case: name of the case.
        metric: name of the metric, see `bt_bench.results.run.metrics`.
        unit: unit of the values.
        base: label of the side that is compared with.
        other: label of the side that is judged.
        base_value: median of the base; `None` if it has none.
        other_value: median of the other side, likewise.
        ratio: other to base; from pairs of rounds if there are any, not from the two medians.
        low: lower end of the ratio's interval behind the verdict.
        high: upper end.
        verdict: the conclusion.
        cause: the reason for it.
        detail: the cause in words, a clause without a full stop.
        exploratory: the metric is not one of the primary ones of its operation, so it is corrected
            in a family apart.
        advisory: the sides are of different runs, so changes of the machine between them count as
            well.
        decides: whether the exit code follows it.
        evidence: the numbers; `None` if none were needed or available.
    """

    operation: Operation
    case: str
    metric: str
    unit: str
    base: str
    other: str
    base_value: float | None
    other_value: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    cause: Cause
    detail: str
    exploratory: bool = False
    advisory: bool = False
    decides: bool = True
    evidence: Evidence | None = None

    @property
    def key(self) -> str:
        """Return operation and case, as given on the command line."""
        return f"{self.operation}/{self.case}"

    @property
    def word(self) -> str:
        """Return the verdict as people read it; for counts, `MORE` or `FEWER`."""
        if self.cause is Cause.EXACT:
            return _WORDS_OF_COUNTS.get(self.verdict, self.verdict.value)
        return self.verdict.value

    @property
    def is_final(self) -> bool:
        """Return whether further rounds cannot change it, since each look has its part of alpha."""
        return self.verdict in (Verdict.SLOWER, Verdict.FASTER)

    @property
    def is_open(self) -> bool:
        """Return whether more rounds could change it."""
        return self.verdict is Verdict.INCONCLUSIVE

    @property
    def percent(self) -> float | None:
        """Return the change in percent of the base; positive if the metric grew."""
        return None if self.ratio is None else 100 * (self.ratio - 1)


@dataclass(frozen=True)
class Overall:
    """One metric of an operation over all cases of a side: the geometric mean of their ratios.

    The interval treats the cases as a sample of possible cases; `None` below two cases.
    """

    operation: Operation
    metric: str
    base: str
    other: str
    cases: int
    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Power:
    """The slowdown that a gate could have found, and whether it meets the request.

    Shares are of the base's value; infinite for a figure without a conclusion.

    Args:
        detect: the slowdown that is to be found in any figure, as a share.
        floor_us: in short figures it is to be found only from this many microseconds on.
        figures: how many figures were tested or still could be.
        short: how many of them are not decided, and need a larger slowdown than asked for.
        worst: the figure that needs the largest slowdown, relative to the requested one.
        worst_share: the slowdown that it needs.
        median_share: the slowdown that half of the figures need at most.
        noise: the source of the noise, a clause, if a figure falls short; else empty.
        common: share of the noise that all figures of a process have in common; `None` if unknown.
        sentence: all that as text, without a line break.
    """

    detect: float
    floor_us: float
    figures: int
    short: int
    worst: str
    worst_share: float
    median_share: float
    noise: str
    common: float | None
    sentence: str

    @property
    def falls_short(self) -> bool:
        """Return whether a slowdown as large as asked for could have been missed."""
        return self.short > 0


@dataclass(frozen=True)
class Judged:
    """A whole comparison.

    Args:
        title: the compared sides, one line.
        subject: the config, the machine, and whether the results are right: a clause, or empty.
        self_checks: the ones that failed in the compared runs, a sentence for each run.
        sorted_by: name of the requested order; empty where judgements are in the order of the
            cases.
        base: label of the side that the others are compared with.
        others: labels of the others.
        judgements: on every metric of every case.
        overall: per operation, metric and side.
        facts: how it was done, a sentence each.
        scope: the part that is shown and counts, if not all, a sentence each.
        warnings: reasons not to trust it, a clause each.
        power: the slowdown that a gate could have found; `None` where nothing was timed in rounds.
        unseen: effects that it cannot see at all, a sentence that reports begin with; empty if
            there are none.
    """

    title: str
    base: str
    others: tuple[str, ...]
    judgements: tuple[Judgement, ...]
    overall: tuple[Overall, ...]
    facts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    power: Power | None = None
    unseen: str = ""
    subject: str = ""
    self_checks: tuple[str, ...] = ()
    sorted_by: str = ""

    @property
    def deciding(self) -> list[Judgement]:
        """Return the judgements that the exit code follows."""
        return [judgement for judgement in self.judgements if judgement.decides]

    def count(self, verdict: Verdict) -> int:
        """Count the judgements that have a verdict."""
        return sum(judgement.verdict is verdict for judgement in self.judgements)


def tally_of(judged: Judged) -> str:
    """Count the verdicts that the exit code follows, and apart from them the exploratory ones."""
    others = [judgement for judgement in judged.judgements if not judgement.decides]
    apart = f"; exploratory metrics (they do not decide): {tally(others)}" if others else ""
    return f"{tally(judged.deciding)}{apart}"


def tally(judgements: Iterable[Judgement]) -> str:
    """Count judgements by verdict, in words, the worst first; `none` without any."""
    counted = Counter(
        (WORST_FIRST.index(each.verdict), each.word != each.verdict.value, each.word)
        for each in judgements
    )
    return ", ".join(f"{count} {word}" for (*_, word), count in sorted(counted.items())) or "none"
