"""Sentences claim no more cases than there are figures for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.judgements import judgement, rich

from bt_bench.analysis import Cause, Judgement, Verdict
from bt_bench.report.formats.phrases import sentence, sentences
from bt_bench.results import Quantity, series_of

HOST = series_of(Quantity.HOST_US)


def found(verdict: Verdict, ratio: float) -> Judgement:
    return judgement(metric="host_us", verdict=verdict, cause=Cause.BEYOND_MARGIN, ratio=ratio)


TWO_OF_THREE = "it takes 2.0–10.0 × less host time in 2 of 3 cases"
FASTER = [found(Verdict.FASTER, 0.5), found(Verdict.FASTER, 0.1)]


@pytest.mark.parametrize(
    ("judgements", "total", "told"),
    [
        (FASTER, 2, "it takes 2.0–10.0 × less host time."),
        (
            FASTER,
            3,
            f"{TWO_OF_THREE}, without a valid figure in 1 of 3 cases.",
        ),
        (
            [*FASTER, found(Verdict.INVALID, 0.2)],
            3,
            f"{TWO_OF_THREE}, without a valid figure in 1 of 3 cases.",
        ),
        (
            [*FASTER, found(Verdict.SLOWER, 1.25)],
            3,
            f"{TWO_OF_THREE}, 1.25 × more host time in 1 of 3 cases.",
        ),
        ([found(Verdict.SLOWER, 1.04)], 1, "it takes 4 % more host time."),
        ([found(Verdict.MISSING, 1.0)], 1, "it: host time without a valid figure."),
    ],
)
def test_every_case_is_counted(judgements: Sequence[Judgement], total: int, told: str) -> None:
    assert sentence("it", {HOST: judgements}, total) == told


@pytest.mark.parametrize(
    ("detectable", "told"),
    [(8.32, "832 % or more would have been"), (10.1, "no change below 1000 % would have been")],
)
def test_the_limit_of_what_is_undecided_is_told(detectable: float, told: str) -> None:
    first = next(each for each in rich().judgements if each.evidence)
    assert first.evidence
    evidence = replace(first.evidence, detectable=detectable)
    undecided = replace(found(Verdict.INCONCLUSIVE, 0.9), evidence=evidence)
    said = sentence("it", {HOST: [undecided]}, 1)
    assert said == f"it: host time undecided ({told} detected)."


def test_counts_and_exploratory_metrics_have_none() -> None:
    others = [judgement(metric="launches"), judgement(metric="host_us/busy", exploratory=True)]
    assert [*sentences(others)] == []


def test_the_base_is_named_where_there_are_several():
    one, two = (judgement(base=base, other=f"x{base}") for base in ("a", "b"))
    assert [text.partition(":")[0] for text in sentences([one, two])] == [
        "step, against a",
        "step, against b",
    ]
    (alone,) = sentences([one])
    assert alone.startswith("step: xa takes the same")
