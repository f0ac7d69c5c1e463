"""The smallest suite, as `docs/suites.md` has it, is complete and works."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from examples.tools import bench
from examples.wrong_variants import ROOT

BLOCK = re.compile(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The suite of the page, and the working directory beside it."""
    page = (ROOT / "docs" / "suites.md").read_text(encoding="utf-8")
    for name, text in BLOCK.findall(page):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "token_copy"


def test_its_variants_pass(folder):
    outcome = bench("check", suite=folder)
    assert outcome.code == 0, outcome
    assert "8 passed, 0 failed, on cpu" in outcome.out


def test_it_is_measured(folder):
    outcome = bench("sweep", "quick", "--device", "cpu", "--out", "r", suite=folder)
    assert outcome.code == 0, outcome
    result = json.loads(Path("r/fused.json").read_text(encoding="utf-8"))
    assert result["suite"]["name"] == "token_copy"
    launches = {len(step) for case in result["cases"] for step in case["launches"]["steps"]}
    assert launches == {1}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("BLOCK + tl.arange(0, BLOCK)", "(BLOCK - 1) + tl.arange(0, BLOCK)", "race"),
        ("mask=live), mask=live)", "mask=live))", "outside of every tensor"),
        ("sampled + rows", "sampled + requests", "input_ids["),
    ],
)
def test_its_check_finds_defects(folder, old, new, message):
    path = folder / "token_kernels" / "variants" / "fused.py"
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    outcome = bench("check", "--variants", "fused", suite=folder)
    assert outcome.code == 5, outcome
    assert message in outcome.out
