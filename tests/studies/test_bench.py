"""The input of `make bench` is made, and is what the commands that it times read."""

from __future__ import annotations

from pathlib import Path

import bench
import pytest
from support.commands import run

from bt_bench.suites.block_tables.workloads.serving.columns import PRESETS


@pytest.mark.parametrize("quantities", [1, 8])
def test_results_are_compared(
    quantities: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "CASES", 3)
    results = bench.write_results(tmp_path / "results", quantities)
    outcome = run("compare", *results, "--fail-on", "none", "--json")
    judgements = outcome.json()["judgements"]
    assert {judgement["case"] for judgement in judgements} == {"case0", "case1", "case2"}
    assert len({judgement["metric"] for judgement in judgements}) >= quantities


def test_steps_of_a_trace_are_counted(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    lines = [",".join(PRESETS["azure"][:3]), "2024-05-10 00:00:00.0,20,3"]
    trace.write_text("\n".join(lines) + "\n")
    assert bench.build_trace(str(trace)) == 3
