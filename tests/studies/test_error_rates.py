"""`studies/error_rates.py` counts what it says and can fail; committed pages are of its counts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from counting import Outcome, Rate, broken, total
from error_rates import ALARMS, OTHER_RULES, SLOWDOWNS, STUDIES, entries_from, simulate_chunk
from synthetic import RUN_METRICS, Noise, draw_run

from bt_bench.analysis import Rules, Verdict
from bt_bench.analysis.judging import judge_entries
from bt_bench.analysis.verdicts import NO_SYSTEMATIC, Margin
from bt_bench.report import render_document

REPORTS = Path(__file__).parents[2] / "reports"
GOOD = {
    "red": Rate(10, 1000),
    "at margin": Rate(9, 1000),
    "found 0.03": Rate(950, 1000),
    "found 0.05": Rate(990, 1000),
    "found said": Rate(980, 1000),
}


@pytest.mark.parametrize(
    ("worse", "message"),
    [
        ({}, None),
        ({"red": Rate(11, 1000)}, "red: 1.10 %"),
        ({"found 0.03": Rate(949, 1000)}, "found 0.03: 94.90 %"),
        ({"found 0.05": Rate(989, 1000)}, "found 0.05: 98.90 %"),
        ({"found said": Rate(979, 1000)}, "found said: 97.90 %"),
        ({"found 0.05": Rate(999, 999)}, "found 0.05: 100.00 %"),  # a gate that tried none
        ({"found 0.05": Rate(0, 0)}, "found 0.05: not tried"),
        ({"at margin": Rate(30, 1000)}, "at margin: 3.00 %"),
    ],
)
def test_broken_promises(worse, message) -> None:
    problems = broken(STUDIES["gate"].promises, Outcome(GOOD | worse, runs=1000))
    assert len(problems) == (message is not None)
    assert all(problem.startswith(message) for problem in problems)


def test_rules_of_other_tools() -> None:
    generator = np.random.default_rng(0)
    base = 100 + generator.normal(size=(400, 1))
    for head, expected in (
        (base, [False, False, False]),
        (base * 1.03, [True, False, True]),
        (base * 1.06, [True, True, True]),
        (base * 0.9, [False, False, False]),
        (np.where(np.arange(400)[:, None] < 4, base * 10, base), [False, True, False]),
    ):
        shuffled = generator.permutation(head)
        found = [bool(rule(base, shuffled)[0]) for rule in OTHER_RULES.values()]
        assert found == expected


def test_gates() -> None:
    found = simulate_chunk("gate", Noise.SPIKY, [0], 2)
    undecided = found.rates.pop("undecided")
    assert undecided.trials == 2 * 60
    assert {rate.trials for rate in found.rates.values()} == {found.runs} == {2}
    assert found.rates["found 0.05"].times == 2
    found.rates["found 0.03"] = Rate(2, 2)
    assert broken(STUDIES["gate"].promises, found) == []


def test_far_slowdowns_are_found_and_equal_code_is_not() -> None:
    found = simulate_chunk("compare", Noise.WHITE, [1], 5).rates
    assert sum(found[name].times for name in ALARMS) == 0
    assert found[f"found {SLOWDOWNS[-1]:g}"] == Rate(5, 5)
    assert found["beyond"].times == found["beyond"].trials >= 5


@pytest.mark.parametrize("noise", Noise)
def test_arms_of_a_run_are_equal_but_for_noise(noise: Noise) -> None:
    logs = np.log(draw_run(noise, np.random.default_rng(1)))
    medians = np.median(logs, axis=-1)
    assert 0 < np.abs(medians - medians[:1]).max() < 0.1


def test_primary_metrics_are_two_of_all() -> None:
    found = entries_from(draw_run(Noise.WHITE, np.random.default_rng(1)))
    assert len(found) == 10 * len(RUN_METRICS)
    primary = {entry.metric.name for entry in found if not entry.exploratory}
    assert primary == {"host_us", "gpu_us"}


def test_a_margin_that_is_never_reached_is_noticed() -> None:
    """With no margin at all and no correction, equal code is told apart: the count can fail."""
    found = entries_from(draw_run(Noise.WHITE, np.random.default_rng(1)))
    for entry in found:
        if entry.margin is not None:
            entry.margin, entry.systematic = Margin(0.0, 0.0), NO_SYSTEMATIC
    rules = Rules(alpha=0.5)
    verdicts = {each.verdict for each in judge_entries(found, rules.correction, rules.alpha)}
    assert verdicts & {Verdict.SLOWER, Verdict.FASTER}


@pytest.mark.parametrize("name", STUDIES)
def test_the_committed_page_is_of_committed_counts_that_keep_the_promises(name: str) -> None:
    path = REPORTS / f"{name}-rates" / f"{name}-rates.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    page = render_document(STUDIES[name].page(found))
    assert path.with_suffix(".md").read_text(encoding="utf-8") == page
    assert list(found["kinds"]) == list(Noise)
    for kind in found["kinds"].values():
        rates = {name: Rate(of["times"], of["trials"]) for name, of in kind["rates"].items()}
        assert broken(STUDIES[name].promises, Outcome(rates, runs=1000)) == []
        if name == "compare":
            assert rates["beyond"].times >= 0.99 * rates["beyond"].trials > 0
            assert found["alpha"] == Rules().alpha


def test_outcomes_are_added() -> None:
    one = Outcome({"a": Rate(1, 2)}, {"b": [1.0]})
    assert total([one, Outcome({"a": Rate(0, 1), "c": Rate(0, 1)}, {"b": [2.0]}, runs=3)]) == (
        Outcome({"a": Rate(1, 3), "c": Rate(0, 1)}, {"b": [1.0, 2.0]}, runs=4)
    )
