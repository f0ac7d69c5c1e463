"""What the README quotes is in the committed reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from bt_bench.report.markdown import render_comparison
from bt_bench.store import read_run

ROOT = Path(__file__).parent.parent
RUNS = sorted(path for path in (ROOT / "reports" / "h200").iterdir() if path.is_dir())
README = (ROOT / "README.md").read_text(encoding="utf-8")


def rows_of(text):
    """Cells of all table rows of a Markdown text."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def test_table_is_that_of_the_committed_run():
    report = (ROOT / "reports/h200/origin/comparison.md").read_text(encoding="utf-8")
    step = rows_of(report.split("## Whole step")[1])
    quoted = [row for row in rows_of(README) if row[0].endswith("grp")]
    assert len(quoted) == 5
    for name, *figures in quoted:
        assert [f"{name} · fused", *figures] in step


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_committed_runs_are_complete_and_render_as_committed(run):
    results = read_run(run, order=["baseline", "fused_apply", "fused_gather_slots", "fused"])
    assert results
    assert all(result.complete for result in results)
    assert all(case.status == "ok" for result in results for case in result.cases)
    assert all(result.environment.gpus[0].name == "NVIDIA H200" for result in results)
    committed = (run / "comparison.md").read_text(encoding="utf-8")
    assert render_comparison(results) == committed
