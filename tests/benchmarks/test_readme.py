"""The figures of the README are those of its folders, and it is said if code has changed since."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from bt_bench.errors import UsageError

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
REPORTS = ROOT / "reports" / "h200"


@pytest.fixture
def readme(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("readme")
    del sys.modules["readme"]


def run(readme, monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["readme.py", *map(str, options)])
    return readme.main()


def test_the_readme_has_all_tables_as_their_folders_give_them(readme, monkeypatch):
    text = README.read_text(encoding="utf-8")
    assert all(f"<!-- figures: {name} -->" in text for name in readme.TABLES)
    assert readme.written(text, REPORTS) == text
    assert run(readme, monkeypatch, "--check") == 0


def test_another_figure_is_found_and_mended(readme, monkeypatch, tmp_path, capsys):
    text = README.read_text(encoding="utf-8")
    changed = tmp_path / "README.md"
    row = next(line for line in text.splitlines() if line.startswith("| host + stage, 4 groups"))
    changed.write_text(text.replace(row, row.replace(" | ", " | 1", 1)), encoding="utf-8")
    assert run(readme, monkeypatch, "--check", "--readme", changed) == 1
    assert "not those of their folders: steps beside vLLM; write" in capsys.readouterr().err
    assert run(readme, monkeypatch, "--readme", changed) == 0
    assert changed.read_text(encoding="utf-8") == text


def test_variants_that_have_changed_since_are_named(readme, monkeypatch, tmp_path, capsys):
    page = tmp_path / "README.md"
    begin = "<!-- figures: a whole step by events -->\n"
    page.write_text(f"{begin}<!-- end of figures -->\n", encoding="utf-8")
    folder = tmp_path / "reports" / "origin"
    folder.mkdir(parents=True)
    for name in ("config.yaml", "comparison.md", "fused.json", "baseline.json"):
        shutil.copy(REPORTS / "origin" / name, folder / name)
    now = readme.find_variants()["fused"].source_sha256()
    path = folder / "fused.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    result["variant"]["source_sha256"] = now
    path.write_text(json.dumps(result), encoding="utf-8")
    options = ["--readme", page, "--reports", folder.parent]
    assert run(readme, monkeypatch, *options) == 0
    assert "and have changed since: baseline; measure again: bt-bench" in capsys.readouterr().err
    assert run(readme, monkeypatch, "--check", *options) == 0
    assert run(readme, monkeypatch, "--fresh", *options) == 1
    (folder / "baseline.json").unlink()
    assert run(readme, monkeypatch, "--fresh", *options) == 0
    assert "Of commit c0a30f3, on one NVIDIA H200 with torch" in page.read_text(encoding="utf-8")


def test_what_cannot_be_written_is_refused(readme, tmp_path):
    block = "<!-- figures: {} -->\n<!-- end of figures -->"
    with pytest.raises(UsageError, match="there is no table 'steps'; expected one of steps beside"):
        readme.written(block.format("steps"), REPORTS)
    (tmp_path / "headline").mkdir()
    (tmp_path / "headline" / "headline.md").write_text("nothing", encoding="utf-8")
    with pytest.raises(UsageError, match=r"headline\.md has no figures for the table"):
        readme.written(block.format("steps beside vLLM"), tmp_path)
