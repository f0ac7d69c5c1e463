"""The figures of the docs are those of their folders, and it is said if code has changed since."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import readme
from support.committed import ORIGIN, unpack

from bt_bench.base.errors import UsageError
from bt_bench.variants import find_variants

FIGURES = readme.ROOT / "docs" / "how-fast.md"


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
    for name in ("config.yaml", "comparison.md", "fused.json.xz", "baseline.json.xz"):
        shutil.copy(ORIGIN / name, folder / name)
    unpack(folder)
    return folder


def test_the_pages_have_all_figures():
    """Compare none with its folder: `make readme-check` does, in each `make check`."""
    text = "".join(page.read_text(encoding="utf-8") for page in readme.PAGES)
    assert [name for name in readme.FIGURES if f"<!-- figures: {name} -->" not in text] == []


def test_another_figure_is_found_and_mended(run, tmp_path, capsys):
    whole = FIGURES.read_text(encoding="utf-8")
    end = whole.index("<!-- end of figures -->", whole.index("<!-- figures: machines -->"))
    text = whole[: whole.index("\n##", end)]  # other blocks take as long again
    changed = tmp_path / "README.md"
    row = next(line for line in text.splitlines() if line.startswith("| host + stage: times"))
    changed.write_text(text.replace(row, row.replace(" | ", " | 1", 1)), encoding="utf-8")
    assert run("--check") == 1
    assert "not those of their folders: all cases; write" in capsys.readouterr().err
    assert run() == 0
    assert changed.read_text(encoding="utf-8") == text
    assert run("--check") == 0


def test_variants_that_have_changed_since_are_named(run, origin, tmp_path, capsys, monkeypatch):
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
    assert run("--fresh") == 0  # only the headline has to be of these kernels
    monkeypatch.setattr(readme, "HEADLINES", ("h100/origin",))
    assert run("--fresh") == 1
    (origin / "baseline.json").unlink()
    assert run("--fresh") == 0
    commit = result["environment"]["commit"][:7]
    assert f"Of commit {commit}, 2026-11-25, on one NVIDIA H100" in page.read_text(encoding="utf-8")


def test_what_cannot_be_written_is_refused(origin):
    with pytest.raises(
        UsageError, match="there are no figures 'steps'; expected one of headline, all c"
    ):
        readme.written(block("steps"))
    page = origin / "comparison.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("| INCONCLUSIVE |", "| INVALID¹ |"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"comparison\.md has a footnote to 'INVALID¹', of the"):
        readme.written(block("a whole step by events"))
    page.write_text(text.replace("## Whole step", "## Another"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"comparison\.md has no figures after '## Whole step"):
        readme.written(block("a whole step by events"))
