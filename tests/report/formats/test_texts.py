"""Numbers and sides as texts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.judgements import judged, judgement, timed

from bt_bench.analysis.deciding import verdict_on
from bt_bench.analysis.verdicts import Judgement, Margin, Verdict, tally, tally_of
from bt_bench.base import format_share
from bt_bench.report.formats.texts import (
    change_text,
    headline,
    interval_text,
    limit_text,
    range_texts,
    value_text,
)
from bt_bench.results import Direction


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.046, "+4.6"),
        (0.97, "-3.0"),
        (1.0, "0.0"),
        (1.0004, "0.0"),
        (0.9996, "0.0"),
        (1.0006, "+0.1"),
        (13.0, "+1200.0"),
        (None, "–"),
        (math.inf, "–"),
    ],
)
def test_change(ratio, text):
    assert change_text(ratio) == text


def close(low: float, high: float, margin: float) -> Judgement:
    """A judgement with this interval and margin."""
    (evidence,) = {each.evidence for each in timed()[:1]}
    evidence = replace(evidence, margin=Margin(margin, 0.0), detectable=0.123)
    return judgement(ratio=low, low=low, high=high, evidence=evidence)


@pytest.mark.parametrize(
    ("low", "high", "margin", "texts"),
    [
        (1.032, 1.06, 0.02, ("+3.2", "+6.0", "2")),
        (1.0203, 1.06, 0.02, ("+2.03", "+6.00", "2")),  # 2.0 would not be beyond
        (1.020001, 1.0204, 0.02, ("+2.0001", "+2.0400", "2")),
        (0.9801, 1.0199, 0.02, ("-2.0", "+2.0", "2")),
        (0.97999, 1.0, 0.02, ("-2.001", "0.000", "2")),
        (0.9, 1.01233, 0.01234, ("-10.0", "+1.2", "1.23")),
        (0.9, 1.01235, 0.01234, ("-10.00", "+1.24", "1.234")),
        (0.5, 14.0, 12.345, ("-50.0", "+1300.0", "1234")),
    ],
)
def test_texts_have_the_digits_that_the_verdict_needs(low, high, margin, texts):
    found = range_texts(close(low, high, margin))
    assert (found.low, found.high, found.margin) == texts
    assert (found.interval, found.limit) == (f"{texts[0]} to {texts[1]}", "12.3")


def test_what_is_printed_says_what_the_verdict_is():
    generator = np.random.default_rng(5)
    for _ in range(500):
        margin = float(10 ** generator.uniform(-3, 0.3))
        ends = generator.choice([-margin, margin], 2) + generator.normal(0, margin, 2) * (
            10.0 ** generator.integers(-6, 1, 2)
        )
        low, high = sorted(np.maximum(1 + ends, 0.0).tolist())
        texts = range_texts(close(low, high, margin))
        from_low, to_high, within = map(float, (texts.low, texts.high, texts.margin))
        if from_low > within:
            said = Verdict.SLOWER
        elif to_high < -within:
            said = Verdict.FASTER
        else:
            same = -within <= from_low and to_high <= within
            said = Verdict.SAME if same else Verdict.INCONCLUSIVE
        assert said is verdict_on(low, high, margin, Direction.LOWER), (low, high, margin, texts)


def test_limits():
    assert [limit_text(share) for share in (0.0312, 9.99, 10.1)] == ["3.12", "999", ">1000"]


def test_interval():
    assert interval_text(1.032, 1.06) == "+3.2 to +6.0"
    assert interval_text(None, None) == "–"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.0, "launches", "3"),
        (2.5, "launches", "2.500"),
        (0.0, "bytes", "0"),
        (123456.0, "bytes", "123456"),
        (3.0, "us", "3.000"),
        (0.0621, "us", "0.06210"),
        (None, "us", "–"),
        (math.nan, "us", "–"),
    ],
)
def test_value(value, unit, text):
    assert value_text(value, unit) == text


def test_share():
    assert [format_share(share) for share in (0.02, 0.0625, 0.3142, 0.0)] == [
        *("2 %", "6.25 %", "31.4 %", "0 %"),
    ]


def test_counts_name_the_worst_first():
    found = [judgement(), judgement(verdict=Verdict.SLOWER), judgement(verdict=Verdict.FASTER)]
    assert tally([*found, judgement()]) == "1 SLOWER, 1 FASTER, 2 SAME"
    assert tally([]) == "none"


def test_what_does_not_decide_is_counted_apart():
    apart = judgement(verdict=Verdict.SLOWER, decides=False)
    assert tally_of(judged(judgement(), apart)) == (
        "1 SAME; exploratory metrics (they do not decide): 1 SLOWER"
    )
    assert tally_of(judged(judgement())) == "1 SAME"


def test_headline_has_what_there_is():
    start = "step/medium_batch_4grp gpu_us, fused@HEAD against fused@main"
    assert headline(judgement()) == start
    assert headline(judgement(ratio=1.5)) == f"{start}: +50.0 %"
    assert headline(judgement(ratio=1.5, low=1.4, high=1.6)).endswith("(+40.0 to +60.0 %)")
    assert headline(judgement(base_value=0.0, other_value=2.0)) == f"{start}: 0 to 2.000 µs"
