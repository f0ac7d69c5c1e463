"""Numbers and sides as texts."""

from __future__ import annotations

import math

import pytest
from support.judgements import judgement

from bt_bench.analysis.verdicts import Verdict, tally
from bt_bench.report.formats.texts import (
    change_text,
    headline,
    interval_text,
    value_text,
)
from bt_bench.results import format_share


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


def test_headline_has_what_there_is():
    start = "step/medium_batch_4grp gpu_us, fused@HEAD against fused@main"
    assert headline(judgement()) == start
    assert headline(judgement(ratio=1.5)) == f"{start}: +50.0 %"
    assert headline(judgement(ratio=1.5, low=1.4, high=1.6)).endswith("(+40.0 to +60.0 %)")
    assert headline(judgement(base_value=0.0, other_value=2.0)) == f"{start}: 0 to 2.000 us"
