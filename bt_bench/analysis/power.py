"""The slowdown that a gate could have found, and the obstacles to finding a smaller one.

A gate that is too noisy to find a regression is as green as one of equal code. So each test reports
the slowdown that it finds with 99 %, and the gate reports whether this meets the request.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bt_bench.analysis.deciding import POWER, detection_limit
from bt_bench.analysis.statistics.student import t_critical, t_quantile
from bt_bench.analysis.verdicts import Evidence, Judgement, Power, Verdict
from bt_bench.base import format_share, unit_text
from bt_bench.base.names import MOST_ROUNDS
from bt_bench.results import FloatArray, metric_named

DEFAULT_DETECT = 0.05
"""The slowdown that a gate is to find in any figure, as a share."""

US_PER_SHARE = 3.0
LEAST_US = 0.1

COMMON_NOISE = 0.3
"""From this share on, noise counts as common to all figures of a process."""

LONE_SHARE = 0.1
"""If at most this share of the figures falls short, the noise is theirs and not the machine's."""

LEAST_ROUNDS = 6
"""Fewer rounds cannot show the common share of their noise."""


@dataclass(frozen=True)
class Sought:
    """The slowdown that is to be found in a figure.

    Args:
        detect: in figures of some length, as a share.
        margin: the change that the gate ignores in them, as a share.
    """

    detect: float = DEFAULT_DETECT
    margin: float = 0.0

    @property
    def floor_us(self) -> float:
        """Return the least slowdown, in microseconds, that is to be found in short figures.

        It is the share of 3 µs, and at least 0.1 µs: 0.15 µs for 5 %, and 0.1 µs for 3 %.
        """
        return max(LEAST_US, US_PER_SHARE * self.detect)

    @property
    def text(self) -> str:
        """Return text such as `5 % or 0.15 µs, whichever is more`."""
        return f"{format_share(self.detect)} or {self.floor_us:.3g} µs, whichever is more"

    def of(self, judgement: Judgement) -> float:
        """Return the share for one figure; a margin of its own above the gate's comes on top."""
        evidence = judgement.evidence
        own = evidence.margin.configured - self.margin if evidence else 0.0
        scale = (judgement.base_value or 0.0) + metric_named(judgement.metric).offset
        floor = self.floor_us / scale if scale > 0 else math.inf
        return max(self.detect + max(0.0, own), floor)


def forecast(evidence: Evidence, rounds: float, alpha: float, wider: bool = False) -> float:
    """Return the detection limit that a later look will have, as a share.

    Args:
        evidence: of the test so far.
        rounds: the later number of rounds, as a multiple of the present one.
        alpha: of that look.
        wider: whether the difference of copies is made of noise, which more rounds reduce.
    """
    shrunk, systematic = 1 / math.sqrt(rounds), evidence.systematic
    if wider and systematic.copies is not None:
        systematic = replace(systematic, copies=systematic.copies * shrunk)
    degrees = max(1, round(evidence.degrees * rounds))
    level = alpha / evidence.tests
    return detection_limit(evidence.margin, systematic, evidence.error * shrunk, degrees, level)


def rounds_needed(evidence: Evidence, asked: float, alpha: float) -> float:
    """Return the multiple of rounds that it takes to find a slowdown of `asked`, as a share.

    It is infinite where more rounds would not help: the margin itself, or the difference of copies
    of unchanged code, is as large.

    Args:
        evidence: of the test so far.
        asked: the slowdown.
        alpha: of the look after these rounds.
    """
    room = math.log1p(asked) - math.log1p(evidence.needed)
    if room <= 0:
        return math.inf
    level = alpha / evidence.tests
    reach = t_critical(level, evidence.degrees) + t_quantile(POWER, evidence.degrees)
    return (reach * evidence.error / room) ** 2


def is_short(judgement: Judgement, asked: Sought) -> bool:
    """Return whether the requested slowdown might have been missed in a figure.

    A figure that is found to be slower or faster, or shown to be the same, does not count.
    """
    if judgement.evidence is None:
        return judgement.is_open
    decided = judgement.is_final or judgement.verdict is Verdict.SAME
    return not decided and _found(judgement) > asked.of(judgement)


def power_of(
    judgements: Sequence[Judgement],
    asked: Sought,
    changes: FloatArray | None = None,
    apart: Mapping[str, str] | None = None,
    disturbances: Sequence[str] = (),
) -> Power | None:
    """Return the gate's power to find slowdowns; `None` where nothing was tested.

    Args:
        judgements: of the gate.
        asked: the slowdown that it was to find.
        changes: of paired figures by round, [figures, rounds], for the common part of their noise;
            NaN where missing.
        apart: variants that were measured apart, with the reason.
        disturbances: other disturbances of the machine that were seen, a clause each.
    """
    figures = [each for each in judgements if each.evidence is not None or each.is_open]
    if not figures:
        return None
    short = [each for each in figures if is_short(each, asked)]
    # A decided change was found, whatever its detection limit.
    undecided = [each for each in figures if not each.is_final]
    weighed = undecided or figures
    worst = max(short or weighed, key=lambda each: _found(each) / asked.of(each))
    common = None if changes is None else common_noise(changes)
    noise = _noise(figures, short, common, apart or {}) if short else ""
    middle = float(np.median([_found(each) for each in weighed]))
    return Power(
        detect=asked.detect,
        floor_us=asked.floor_us,
        figures=len(figures),
        short=len(short),
        worst=_name(worst),
        worst_share=_found(worst),
        median_share=middle,
        noise=noise,
        common=common,
        sentence=_missed(short, figures, worst, asked, noise, disturbances)
        if short
        else _sufficed(figures, worst, middle, asked),
    )


def common_noise(changes: FloatArray) -> float | None:
    """Return the share of the noise common to all figures of a process; `None` if unknown.

    Changes are centred and scaled by figure. If a share c of each one's variance is common to all,
    the mean of n figures has the variance c + (1 - c) / n over rounds; solved for c. It is the
    intraclass correlation of one-way random effects (Shrout and Fleiss, "Intraclass Correlations",
    Psychological Bulletin 86 (1979), 420-428). Median and median absolute deviation replace mean
    and standard deviation, so single rounds have little influence.

    Args:
        changes: log ratios [figures, rounds]; NaN where missing.
    """
    whole = changes[:, ~np.isnan(changes).any(axis=0)]
    centred = whole - np.median(whole, axis=1, keepdims=True) if whole.size else whole
    sizes = np.median(np.abs(centred), axis=1) if whole.size else np.zeros(0)
    centred = centred[sizes > 0] / sizes[sizes > 0, None]
    count, rounds = centred.shape
    if count < 2 or rounds < LEAST_ROUNDS:
        return None
    of_mean = np.median(np.abs(centred.mean(axis=0) - np.median(centred.mean(axis=0)))) ** 2
    return float(min(1.0, max(0.0, (count * of_mean - 1) / (count - 1))))


def _found(judgement: Judgement) -> float:
    return math.inf if judgement.evidence is None else judgement.evidence.detectable


def _name(judgement: Judgement) -> str:
    variant = judgement.other.partition("@")[0]
    return f"{judgement.metric} of {variant} in {judgement.key}"


def _sufficed(
    figures: Collection[Judgement], worst: Judgement, middle: float, asked: Sought
) -> str:
    if all(each.is_final for each in figures):
        return "All figures are decided, so the detection limit does not matter."
    same = sum(_found(each) > asked.of(each) and not each.is_final for each in figures)
    but = f" ({same} without that certainty are shown to be the same)" if same else ""
    return (
        f"A slowdown of {asked.text}, of any figure would have been found with 99 %{but}. Most is "
        f"needed by {_name(worst)}, {_amount(worst)}; half of the figures need "
        f"{format_share(middle)} at most."
    )


def _missed(
    short: Sequence[Judgement],
    figures: Sequence[Judgement],
    worst: Judgement,
    asked: Sought,
    noise: str,
    disturbances: Sequence[str],
) -> str:
    of = "its only figure" if len(figures) == 1 else f"{len(short)} of {len(figures)} figures"
    also = f" Beside that, {'; '.join(disturbances)}." if disturbances else ""
    if math.isinf(_found(worst)):
        needs = "on which nothing can be said yet"
    else:
        needs = f"where it would have found {_amount(worst)}"
    return (
        f"This gate could not have found a slowdown of {asked.text}, with 99 % in {of}; the worst "
        f"is {_name(worst)}, {needs}. The reason is {noise}.{also}{_remedy(short, asked)}"
    )


def _remedy(short: Sequence[Judgement], asked: Sought) -> str:
    """Suggest a remedy where figures fall short: how many rounds it takes, if rounds help."""
    tested = [(each, each.evidence) for each in short if each.evidence is not None]
    needed = max(
        (
            rounds_needed(evidence, asked.of(each), evidence.alpha) * evidence.observations
            for each, evidence in tested
        ),
        default=0.0,
    )
    if not needed:
        return ""
    if needed <= MOST_ROUNDS:
        rounds = math.ceil(needed / 10) * 10
        return (
            f" About {rounds} rounds would do, by --max-rounds {rounds}, if the noise stays as it "
            "is; a gate takes as long as it has rounds."
        )
    return (
        f" More rounds would not do: up to {MOST_ROUNDS} are possible. A quieter machine may, or "
        "ask for larger slowdowns with --detect."
    )


def _is_biased(judgement: Judgement) -> bool:
    """Return whether most of a figure's detection limit is due to a control that moved."""
    evidence = judgement.evidence
    if evidence is None or evidence.needed <= evidence.margin.share:
        return False
    return math.log1p(evidence.needed) >= math.log1p(_found(judgement)) / 2


def _amount(judgement: Judgement) -> str:
    found = _found(judgement)
    if judgement.base_value is None:
        return format_share(found)
    return f"{format_share(found)} ({found * judgement.base_value:.3g} {unit_text(judgement.unit)})"


def _noise(
    figures: Sequence[Judgement],
    short: Sequence[Judgement],
    common: float | None,
    apart: Mapping[str, str],
) -> str:
    """Return why the machine is too noisy, as a clause."""
    if all(each.evidence is None for each in short):
        return "that there are too few rounds for an interval"
    variants = {each.other.partition("@")[0] for each in short} & set(apart)
    alone = [each for each in short if each.other.partition("@")[0] not in apart]
    if variants and not alone:
        names = ", ".join(sorted(variants))
        return (
            f"that base and head of {names} were measured in processes of their own, which differ"
        )
    if all(_is_biased(each) for each in alone):
        return "that copies of unchanged code certainly differ"
    if common is not None and common >= COMMON_NOISE:
        return (
            f"noise that all figures of a process have in common ({common:.0%} of it): something "
            "slows a copy as a whole, such as other work on the machine or a changing clock"
        ).replace("%", " %")
    if len(alone) <= max(1, LONE_SHARE * len(figures)) and len(figures) > 1:
        return "noise of that figure alone" if len(alone) == 1 else "noise of these figures alone"
    return "noise in all figures, which have none of it in common"
