"""The page on the gate's statistics quotes what was simulated, and the constants that there are."""

from __future__ import annotations

import json
from pathlib import Path

from bt_bench.deciding import SPREAD_FACTOR, Rules
from bt_bench.gating import judging
from bt_bench.gating.loop import DEFAULT_LOOKS, GatePlan
from bt_bench.gating.selfcheck import LEAST_FOUND, MOST_RED
from bt_bench.gating.synthetic import Noise, SyntheticPopulation
from bt_bench.metrics import TIME_FLOOR_US

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gate-statistics.md").read_text(encoding="utf-8")
RATES = ROOT / "reports" / "gate-rates"


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_rates_are_those_of_the_report() -> None:
    report = rows((RATES / "gate-rates.md").read_text(encoding="utf-8"))
    quoted = [row for row in rows(PAGE) if len(row) == 5 and row[0]]
    assert len(quoted) >= 10
    for row in quoted:
        assert row in report


def test_the_report_kept_its_promises_at_the_defaults() -> None:
    summary = json.loads((RATES / "gate-rates.json").read_text(encoding="utf-8"))
    assert tuple(summary["looks"]) == DEFAULT_LOOKS
    assert summary["rules"] == vars(Rules())
    for kind in summary["kinds"].values():
        assert kind["runs"] >= 1000
        assert kind["missed"] == []
        assert kind["rates"]["red"]["rate"] <= MOST_RED
        for factor, least in LEAST_FOUND.items():
            assert kind["rates"][f"own {factor}"]["rate"] >= least


def test_constants() -> None:
    first, second, last = DEFAULT_LOOKS
    assert f"looks after {first}, {second} and {last} rounds" in PAGE
    assert f"{judging.TRIMMED_SHARE:.0%}".replace("%", " %") + " left out" in PAGE
    assert f"half the {judging.SPREAD_CONFIDENCE:.0%}".replace("%", " %") in PAGE
    assert (SPREAD_FACTOR, judging.TRIMMING_DEGREES) == (3, 2)
    assert f"{TIME_FLOOR_US} µs for times" in PAGE
    assert judging.MAX_SPREAD == 0.25
    subjects = SyntheticPopulation(Noise.WHITE).subjects
    spent = [f"{100 * alpha:.2f}" for alpha in GatePlan(subjects).alphas(Rules().alpha)]
    assert f"{spent[0]}, {spent[1]} and {spent[2]} %" in PAGE
