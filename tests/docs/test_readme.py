"""Check that the page of figures quotes the committed reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bt_bench.analysis.promises import judge_promises
from bt_bench.config import planned_variants
from bt_bench.report.run.rendering import render_comparison
from bt_bench.results import read_recording
from bt_bench.results.files.reading import read_run
from bt_bench.results.run.calibration import Calibration
from bt_bench.runs import judge_recording

ROOT = Path(__file__).parents[2]
RUNS = sorted(
    path.parent
    for machine in ("h100", "h200")
    for path in (ROOT / "reports" / machine).rglob("comparison.md")
)
GATES = sorted(path.parent for path in (ROOT / "reports").rglob("recording.json"))
PAGE = (ROOT / "docs" / "how-fast.md").read_text(encoding="utf-8")


def test_what_is_said_of_simulated_runs_is_what_was_simulated():
    path = ROOT / "reports/compare-rates/compare-rates.json"
    found = json.loads(path.read_text(encoding="utf-8"))["kinds"].values()
    prose = " ".join(PAGE.split())
    runs = sum(kind["runs"] for kind in found)
    assert f"In {runs:,} simulated runs of equal code none was" in prose
    for kind in found:
        alarms = [name for name in kind["rates"] if name.endswith(("SLOWER", "FASTER"))]
        assert [kind["rates"][name]["times"] for name in alarms] == [0] * 4
    for slowdown in (0.07, 0.1):
        rates = [round(100 * kind["rates"][f"found {slowdown:g}"]["rate"]) for kind in found]
        assert f"{100 * slowdown:g} %" in prose
        assert f" in {min(rates)} to {max(rates)} %" in prose


def test_what_is_said_of_pairs_of_equal_runs_is_what_was_found():
    found = json.loads((ROOT / "reports/equal-pairs/equal-pairs.json").read_text(encoding="utf-8"))
    pairs = found["pairs"]
    assert len({pair["base"] for pair in pairs}) == 10
    assert len(found["measured"]["machines"]) == 4
    prose = " ".join(PAGE.split())
    assert (
        f"all {sum(pair['code'] == 0 for pair in pairs)} comparisons of a variant passed" in prose
    )
    failed = sum(pair["planted"]["code"] == 1 for pair in pairs)
    assert f"and all {failed} failed once a figure was slowed" in prose
    assert failed == len(pairs)


def test_the_committed_calibration_keeps_its_promises():
    found = json.loads((ROOT / "reports/h200/calibrate/calibrate.json").read_text(encoding="utf-8"))
    verdicts = judge_promises(Calibration.model_validate(found["calibration"]))
    assert [verdict.name for verdict in verdicts if not verdict.kept] == []
    (apart,) = [verdict.found for verdict in verdicts if verdict.name == "agreement"]
    assert f"methods, {apart} " in PAGE


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_committed_gates_are_judged_as_committed(gate):
    committed = json.loads((gate / "verdicts.json").read_text(encoding="utf-8"))["judgements"]
    judged = judge_recording(read_recording(gate / "recording.json")).judgements
    assert {(str(j.operation), j.case, j.metric, j.verdict.name) for j in judged} == {
        (j["operation"], j["case"], j["metric"], j["verdict"])
        for j in committed
        if j["evidence"] is not None
    }


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_committed_runs_are_complete_and_render_as_committed(run):
    variants = planned_variants(run)
    assert variants
    results = read_run(run, order=variants)
    assert results
    assert all(result.complete for result in results)
    assert all(case.status == "ok" for result in results for case in result.cases)
    machine = run.relative_to(ROOT / "reports").parts[0].upper()
    assert all(machine in result.environment.gpus[0].name for result in results)
    committed = (run / "comparison.md").read_text(encoding="utf-8")
    assert render_comparison(results) == committed
