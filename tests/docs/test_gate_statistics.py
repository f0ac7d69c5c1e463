"""The page on the gate's statistics quotes what was simulated, and the constants that there are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.tiny_gates import Quiet
from synthetic import Noise, SyntheticPopulation

from bt_bench.analysis import rounds as judging
from bt_bench.analysis.deciding import Rules
from bt_bench.analysis.judging import MAX_SPREAD, SPREAD_FACTOR
from bt_bench.cli.selfcheck import _shipped
from bt_bench.results.nouns import Quantity
from bt_bench.results.recording import read_recording
from bt_bench.results.rounds import GateArm
from bt_bench.runs.gate.loop import DEFAULT_LOOKS, GatePlan
from bt_bench.runs.selfcheck.rates import LEAST_FOUND, MOST_RED, selfcheck
from bt_bench.runs.selfcheck.resampled import RecordedPopulation

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gate-statistics.md").read_text(encoding="utf-8")
RATES = ROOT / "reports" / "gate-rates"
H200 = ROOT / "reports" / "h200"


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_rates_are_those_of_the_report() -> None:
    report = rows((RATES / "gate-rates.md").read_text(encoding="utf-8"))
    quoted = [row for row in rows(PAGE) if len(row) == 5 and row[0]]
    assert len(quoted) >= 10
    for row in quoted:
        assert row in report


def test_rates_on_the_h200_are_those_of_its_report() -> None:
    report = rows((H200 / "gate-rates" / "gate-rates.md").read_text(encoding="utf-8"))
    quoted = [row for row in rows(PAGE) if len(row) == 2 and row[0]]
    assert len(quoted) >= 8
    for row in quoted:
        assert row in report


@pytest.mark.parametrize("folder", [RATES, H200 / "gate-rates"])
def test_the_report_kept_its_promises_at_the_defaults(folder: Path) -> None:
    summary = json.loads((folder / "gate-rates.json").read_text(encoding="utf-8"))
    assert summary["kinds"]
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
    (floor,) = {quantity.traits.floor_us for quantity in Quantity}
    assert (SPREAD_FACTOR, judging.TRIMMING_DEGREES) == (3, 2)
    assert f"{floor} µs for times" in PAGE
    assert MAX_SPREAD == 0.25
    subjects = SyntheticPopulation(Noise.WHITE).subjects
    spent = [f"{100 * alpha:.2f}" for alpha in GatePlan(subjects).alphas(Rules().alpha)]
    assert f"{spent[0]}, {spent[1]} and {spent[2]} %" in PAGE


def test_the_recording_that_comes_with_the_package() -> None:
    recording = read_recording(_shipped())
    assert "H200" in recording.environment.gpus[0].name
    for arm in GateArm:
        whole = [
            taken.values[arm]
            for taken in recording.rounds
            if None not in taken.values.get(arm, [None])
        ]
        assert len(whole) >= 100
    assert f"{len(recording.rounds)} rounds of equal code" in PAGE
    assert f"{len(GateArm) * len(recording.rounds)} process-rounds" in PAGE
    assert f"a gate has {len(recording.subjects)}\ntests" in PAGE


@pytest.mark.slow
def test_the_gate_keeps_its_promises_on_that_recording() -> None:
    population = RecordedPopulation(read_recording(_shipped()))
    found = selfcheck(population, Rules(), 20, 1, DEFAULT_LOOKS, Quiet())
    assert all(promise.kept for promise in found.promises())


@pytest.mark.slow
def test_the_report_on_the_h200_is_of_that_recording(tmp_path: Path) -> None:
    """The same gates, drawn again."""
    script = [sys.executable, str(ROOT / "benchmarks" / "gate_rates.py")]
    script += ["--recording", str(_shipped()), "--out", str(tmp_path)]
    subprocess.run(script, check=True, capture_output=True)
    again, committed = (
        json.loads((folder / "gate-rates.json").read_text(encoding="utf-8"))
        for folder in (tmp_path, H200 / "gate-rates")
    )
    assert again | {"seconds": 0} == committed | {"seconds": 0}


CODES = {"equal": 0, "kernel": 1, "host": 1}


@pytest.mark.parametrize("name", CODES)
def test_real_gates_are_quoted_and_right(name: str) -> None:
    gate = json.loads((H200 / "gate" / f"{name}.json").read_text(encoding="utf-8"))
    found = {
        judgement["metric"]: judgement
        for judgement in gate["judgements"]
        if (judgement["operation"], judgement["case"]) == ("gather_slots", "medium_batch_1grp")
        and judgement["other"].startswith("fused@")
    }
    slowed = {"equal": set(), "kernel": {"gpu_us"}, "host": {"host_us"}}[name]
    assert {m for m, each in found.items() if each["verdict"] == "SLOWER"} == slowed
    # Where all that was slowed is: nothing else came out as slower.
    of_gate = {each["metric"] for each in gate["judgements"] if each["verdict"] == "SLOWER"}
    assert of_gate == slowed
    assert (gate["counts"]["SLOWER"] > 0) == (CODES[name] == 1)
    assert gate["counts"]["MISSING"] == gate["counts"]["INVALID"] == 0
    assert any(fact.startswith("32 rounds of base, head and control") for fact in gate["facts"])
    cells = []
    for metric in ("gpu_us", "host_us"):
        judgement = found[metric]
        percent = 100 * (judgement["ratio"] - 1)
        margin = 100 * judgement["evidence"]["margin"]["share"]
        cells.append(f"{judgement['verdict']}, {percent:+.2f} %, margin {margin:.2f} %")
    assert [name, *cells, str(CODES[name])] in rows(PAGE)
