"""The figures of the docs are those of their folders, and it is said if code has changed since."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import readme

from bt_bench.base.errors import UsageError
from bt_bench.variants import find_variants

FIGURES = readme.ROOT / "docs" / "how-fast.md"
ORIGIN = readme.REPORTS / "h100" / "origin"


def block(name: str) -> str:
    return f"<!-- figures: {name} -->\n<!-- end of figures -->"


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run the script on another page; returns its exit code."""
    page = tmp_path / "README.md"
    monkeypatch.setattr(readme, "PAGES", (page,))

    def run(*options: str) -> int:
        monkeypatch.setattr(sys, "argv", ["readme.py", *options])
        return readme.main()

    return run


@pytest.fixture
def origin(monkeypatch, tmp_path) -> Path:
    """A folder with a copy of a run's figures, in place of the committed one."""
    monkeypatch.setattr(readme, "REPORTS", tmp_path / "reports")
    folder = tmp_path / "reports" / "h100" / "origin"
    folder.mkdir(parents=True)
    for name in ("config.yaml", "comparison.md", "fused.json", "baseline.json"):
        shutil.copy(ORIGIN / name, folder / name)
    return folder


def test_the_pages_have_all_tables_as_their_folders_give_them():
    text = "".join(page.read_text(encoding="utf-8") for page in readme.PAGES)
    assert [name for name in readme.TABLES if f"<!-- figures: {name} -->" not in text] == []
    assert readme.written(text) == text


def test_another_figure_is_found_and_mended(run, tmp_path, capsys):
    text = FIGURES.read_text(encoding="utf-8")
    changed = tmp_path / "README.md"
    row = next(line for line in text.splitlines() if line.startswith("| host + stage: times"))
    changed.write_text(text.replace(row, row.replace(" | ", " | 1", 1)), encoding="utf-8")
    assert run("--check") == 1
    assert "not those of their folders: all cases; write" in capsys.readouterr().err
    assert run() == 0
    assert changed.read_text(encoding="utf-8") == text
    assert run("--check") == 0


def test_variants_that_have_changed_since_are_named(run, origin, tmp_path, capsys):
    page = tmp_path / "README.md"
    page.write_text(block("a whole step by events"), encoding="utf-8")
    for name, source in (
        ("fused", find_variants()["fused"].source_sha256()),
        ("baseline", "0" * 64),
    ):
        path = origin / f"{name}.json"
        result = json.loads(path.read_text(encoding="utf-8"))
        result["variant"]["source_sha256"] = source
        path.write_text(json.dumps(result), encoding="utf-8")
    assert run() == 0
    assert "and have changed since: baseline; measure again: bt-bench" in capsys.readouterr().err
    assert run("--check") == 0
    assert run("--fresh") == 1
    (origin / "baseline.json").unlink()
    assert run("--fresh") == 0
    commit = result["environment"]["commit"][:7]
    assert f"Of commit {commit}, on one NVIDIA H100" in page.read_text(encoding="utf-8")


def test_what_cannot_be_written_is_refused(origin):
    with pytest.raises(UsageError, match="there is no table 'steps'; expected one of all cases, c"):
        readme.written(block("steps"))
    page = origin / "comparison.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("| INCONCLUSIVE |", "| INVALID¹ |"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"comparison\.md has a footnote to 'INVALID¹', of the"):
        readme.written(block("a whole step by events"))
    page.write_text(text.replace("## Whole step", "## Another"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"comparison\.md has no figures for the table"):
        readme.written(block("a whole step by events"))


def test_the_range_over_all_cases_is_that_of_its_page(monkeypatch, tmp_path):
    monkeypatch.setattr(readme, "REPORTS", tmp_path)
    folder = tmp_path / readme.TABLES["all cases"].folder
    folder.mkdir(parents=True)
    page = """# The worst of 3 cases

## The aims

|      | worst case | worst | aim | reached | median | aim | reached | best | cases | not known |
| ---- | ---------- | ----: | --: | ------: | -----: | --: | ------: | ---: | ----: | --------: |
| GPU  | a/few      |  1.25 | ≥ 1 |     yes |   2.50 | ≥ 1 |     yes | 5.00 |     3 |         0 |
| copy | –          |     – | ≥ 1 |      NO |      – | ≥ 1 |      NO |    – |     0 |         0 |

## GPU, the worst 20 of 3

| case | other | groups | requests | tokens | rows written | a | other | ratio | verdict |
| ---- | ----- | -----: | -------: | -----: | -----------: | -: | ---: | ----: | ------: |
"""
    (folder / "worst.md").write_text(page, encoding="utf-8")
    measured = {
        "commits": ["0123456789", "fedcba9876"],
        "device": "NVIDIA H200",
        "torch": "2.11.0",
        "triton": "3.6.0",
        "sources": {"fused": ["of another source"], "vllm": ["of vLLM"]},
        "num_gpus": 2,
    }
    (folder / "worst.json").write_text(json.dumps({"measured": measured}), encoding="utf-8")
    text = readme.written(block("all cases"))
    assert "|  | best | median | worst | worst case | cases |\n" in text
    assert "| GPU | 5.00 | 2.50 | 1.25 | a/few | 3 |\n\nOf commits 0123456 and fedcba9, on" in text
    assert "on 2 NVIDIA H200s with torch 2.11.0 and" in text
    (stale,) = readme.changed_since(text)
    assert "are of commits 0123456 and fedcba9, and have changed since: fused; measure" in stale
