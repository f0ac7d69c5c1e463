"""The committed page of `benchmarks/aa.py` is of the committed comparisons."""

from __future__ import annotations

import json
from pathlib import Path

import aa

from bt_bench.report import render_document

COMMITTED = Path(__file__).parents[2] / "reports" / "h200" / "aa" / "aa.json"


def test_the_committed_page() -> None:
    found = json.loads(COMMITTED.read_text(encoding="utf-8"))
    page = aa.page(*(found[name] for name in ("variant", "environment", "seconds", "comparisons")))
    text = COMMITTED.with_suffix(".md").read_text(encoding="utf-8")
    assert render_document(page) == text
    assert f"{len(found['comparisons'])} verdicts were false" in " ".join(text.split())
