"""Texts that all formats share: a judgement's numbers, sides and verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from bt_bench.analysis import MOST_TOLD, Judgement, Verdict
from bt_bench.base import (
    ABSENT,
    Tone,
    format_factors,
    format_number,
    format_percent,
    format_share,
    one_line,
    unit_text,
)

TONES = {
    Verdict.SLOWER: Tone.BAD,
    Verdict.MISSING: Tone.DOUBTFUL,
    Verdict.INVALID: Tone.DOUBTFUL,
    Verdict.INCONCLUSIVE: Tone.OPEN,
    Verdict.FASTER: Tone.GOOD,
}
"""The tone of each verdict; `SAME` has none."""

_MOST_DECIMALS = 9  # numbers that agree in as many count as equal


_TIME_UNITS = ("us", "ms", "s")


@lru_cache(maxsize=4096)
def clean(text: str) -> str:
    """Return `one_line` of a text, cached: labels and metrics recur in every judgement."""
    return one_line(text)


def verdict_text(judgement: Judgement) -> str:
    """Return `SLOWER`, or `SLOWER (advisory)`."""
    advisory = " (advisory)" if judgement.advisory else ""
    return f"{judgement.word}{advisory}"


def cause_text(judgement: Judgement) -> str:
    """Return the cause in words: `beyond margin`."""
    return judgement.cause.value.replace("_", " ")


def side_text(base: str, other: str) -> str:
    """Return `fused against baseline`."""
    return f"{clean(other)} against {clean(base)}"


def span_text(low: str, high: str) -> str:
    """Return `2`, or `2–5`."""
    return low if low == high else f"{low}–{high}"


def value_text(value: float | None, unit: str) -> str:
    """Return a value without its unit; whole counts and bytes have no decimals."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if unit not in _TIME_UNITS and value == int(value):
        return str(int(value))
    return format_number(value)


def change_text(ratio: float | None, decimals: int = 1) -> str:
    """Return a ratio as a change in percent: `+4.6`, `-3.0`, `0.0`."""
    if ratio is None or not math.isfinite(ratio):
        return ABSENT
    text = format_percent(100 * (ratio - 1), decimals)
    return text if text.startswith("-") or float(text) == 0 else f"+{text}"


def interval_text(low: float | None, high: float | None) -> str:
    """Return an interval of ratios as changes in percent: `+3.2 to +6.0`."""
    if low is None or high is None:
        return ABSENT
    return f"{change_text(low)} to {change_text(high)}"


@dataclass(frozen=True)
class RangeTexts:
    """The ends of an interval, the margin and the detection limit, in percent.

    Their digits suffice to compare each end with the margin: the verdict follows from the printed
    numbers.
    """

    low: str
    high: str
    margin: str
    limit: str

    @property
    def interval(self) -> str:
        """Both ends of the interval."""
        return ABSENT if self.low == ABSENT else f"{self.low} to {self.high}"


def range_texts(judgement: Judgement) -> RangeTexts:
    """Return the numbers that a verdict rests on, as texts."""
    evidence, low, high = judgement.evidence, judgement.low, judgement.high
    if evidence is None or low is None or high is None:
        return RangeTexts(change_text(low), change_text(high), ABSENT, ABSENT)
    margin = evidence.margin.share
    limit = limit_text(evidence.detectable)
    for decimals in range(1, _MOST_DECIMALS):
        texts = RangeTexts(
            change_text(low, decimals),
            change_text(high, decimals),
            format_share(margin, decimals + 2).removesuffix(" %"),
            limit,
        )
        as_read = [float(text) / 100 for text in (texts.low, texts.high, texts.margin)]
        if _places(*as_read) == _places(low - 1, high - 1, margin):
            break
    return texts


@dataclass(frozen=True)
class SpeedUpTexts:
    """A speed-up and its interval as text: `1.27`, and `1.24–1.31`.

    Their digits suffice to compare each end of the interval with the margin.
    """

    point: str
    interval: str

    @property
    def whole(self) -> str:
        """Both: `1.27 × (1.24–1.31)`."""
        return ABSENT if self.interval == ABSENT else f"{self.point} × ({self.interval})"


def speed_up_texts(judgement: Judgement) -> SpeedUpTexts:
    """Return the change of a time as a speed-up over the base."""
    ratio, low, high = judgement.ratio, judgement.low, judgement.high
    if not ratio or not low or not high or not math.isfinite(high):
        return SpeedUpTexts(format_factors(1 / ratio)[0] if ratio else ABSENT, ABSENT)
    factors = 1 / ratio, 1 / high, 1 / low
    margin = 0.0 if judgement.evidence is None else judgement.evidence.margin.share
    texts = format_factors(*factors)
    for decimals in range(2, _MOST_DECIMALS):
        lowest, highest = (1 / float(text) if float(text) else math.inf for text in texts[:0:-1])
        if _places(lowest - 1, highest - 1, margin) == _places(low - 1, high - 1, margin):
            break
        texts = [f"{factor:.{decimals}f}" for factor in factors]
    return SpeedUpTexts(texts[0], "–".join(texts[1:]))


def _places(low: float, high: float, margin: float) -> tuple[bool, ...]:
    """Compare both ends of an interval with both ends of the margin."""
    return low > margin, high < -margin, low >= -margin, high <= margin


def limit_text(share: float) -> str:
    """Return a detection limit in percent: `3.1`, or `>1000` if it is too large to matter."""
    if share > MOST_TOLD:
        return f">{100 * MOST_TOLD:.0f}"
    return format_share(share).removesuffix(" %")


def headline(judgement: Judgement) -> str:
    """Return a finding on one line: case, metric, sides, change and interval."""
    sides = side_text(judgement.base, judgement.other)
    exploratory = " (exploratory)" if judgement.exploratory else ""
    found = f"{judgement.key} {judgement.metric}{exploratory}, {sides}"
    if judgement.ratio is not None:
        found += f": {change_text(judgement.ratio)} %"
        if judgement.low is not None and judgement.high is not None:
            found += f" ({range_texts(judgement).interval} %)"
    elif judgement.base_value is not None or judgement.other_value is not None:
        values = (judgement.base_value, judgement.other_value)
        found += ": {} to {} {}".format(
            *(value_text(value, judgement.unit) for value in values), unit_text(judgement.unit)
        )
    return clean(found)
