"""Texts that all formats share: a judgement's numbers, sides and verdict."""

from __future__ import annotations

import math
from functools import lru_cache

from bt_bench.analysis import Judgement, Verdict
from bt_bench.report.document import ABSENT, Tone, one_line
from bt_bench.results import format_number, format_percent, format_share

TONES = {
    Verdict.SLOWER: Tone.BAD,
    Verdict.MISSING: Tone.DOUBTFUL,
    Verdict.INVALID: Tone.DOUBTFUL,
    Verdict.INCONCLUSIVE: Tone.OPEN,
    Verdict.FASTER: Tone.GOOD,
}
"""What each verdict means for the reader."""

_TIME_UNITS = ("us", "ms", "s")


@lru_cache(maxsize=4096)
def clean(text: str) -> str:
    """`one_line` with a cache, since the same labels and metrics recur in every judgement."""
    return one_line(text)


def verdict_text(judgement: Judgement) -> str:
    """`SLOWER`, or `SLOWER (advisory)`."""
    advisory = " (advisory)" if judgement.advisory else ""
    return f"{judgement.word}{advisory}"


def cause_text(judgement: Judgement) -> str:
    """The cause in words: `beyond margin`."""
    return judgement.cause.value.replace("_", " ")


def side_text(base: str, other: str) -> str:
    """`fused against baseline`."""
    return f"{clean(other)} against {clean(base)}"


def value_text(value: float | None, unit: str) -> str:
    """A value without its unit; counts and bytes are whole numbers where they are whole."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if unit not in _TIME_UNITS and value == int(value):
        return str(int(value))
    return format_number(value)


def change_text(ratio: float | None) -> str:
    """A ratio as a change in percent: `+4.6`, `-3.0`, `0.0`."""
    if ratio is None or not math.isfinite(ratio):
        return ABSENT
    text = format_percent(100 * (ratio - 1))
    return text if text.startswith("-") or float(text) == 0 else f"+{text}"


def interval_text(low: float | None, high: float | None) -> str:
    """An interval of ratios as one of changes in percent: `+3.2 to +6.0`."""
    if low is None or high is None:
        return ABSENT
    return f"{change_text(low)} to {change_text(high)}"


def margin_text(judgement: Judgement) -> str:
    """The margin in percent: `2`, `0.64`."""
    evidence = judgement.evidence
    return ABSENT if evidence is None else format_share(evidence.margin.share).removesuffix(" %")


def headline(judgement: Judgement) -> str:
    """What was found, on one line: case, metric, sides, change and interval."""
    sides = side_text(judgement.base, judgement.other)
    exploratory = " (exploratory)" if judgement.exploratory else ""
    found = f"{judgement.key} {judgement.metric}{exploratory}, {sides}"
    if judgement.ratio is not None:
        found += f": {change_text(judgement.ratio)} %"
        if judgement.low is not None and judgement.high is not None:
            found += f" ({interval_text(judgement.low, judgement.high)} %)"
    elif judgement.base_value is not None or judgement.other_value is not None:
        values = (judgement.base_value, judgement.other_value)
        found += ": {} to {} {}".format(
            *(value_text(value, judgement.unit) for value in values), judgement.unit
        )
    return clean(found)
