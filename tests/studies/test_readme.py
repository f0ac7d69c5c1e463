"""The figures of the README are those of its folders, and it is said if code has changed since."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.variants import find_variants

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "how-fast.md"
REPORTS = ROOT / "reports"


@pytest.fixture
def readme(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    yield importlib.import_module("readme")
    del sys.modules["readme"]


def run(readme, monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["readme.py", *map(str, options)])
    return readme.main()


def test_the_pages_have_all_tables_as_their_folders_give_them(readme, monkeypatch):
    text = "".join(page.read_text(encoding="utf-8") for page in readme.PAGES)
    measured = [name for name, of in readme.TABLES.items() if (REPORTS / of.folder).is_dir()]
    assert {"all cases", "cases by kind", "a whole step by events"} <= set(measured)
    assert [name for name in measured if f"<!-- figures: {name} -->" not in text] == []
    assert readme.written(text, REPORTS) == text
    assert run(readme, monkeypatch, "--check") == 0


def test_another_figure_is_found_and_mended(readme, monkeypatch, tmp_path, capsys):
    text = FIGURES.read_text(encoding="utf-8")
    changed = tmp_path / "README.md"
    row = next(line for line in text.splitlines() if line.startswith("| host + stage: times"))
    changed.write_text(text.replace(row, row.replace(" | ", " | 1", 1)), encoding="utf-8")
    assert run(readme, monkeypatch, "--check", "--page", changed) == 1
    assert "not those of their folders: all cases; write" in capsys.readouterr().err
    assert run(readme, monkeypatch, "--page", changed) == 0
    assert changed.read_text(encoding="utf-8") == text


def test_variants_that_have_changed_since_are_named(readme, monkeypatch, tmp_path, capsys):
    page = tmp_path / "README.md"
    begin = "<!-- figures: a whole step by events -->\n"
    page.write_text(f"{begin}<!-- end of figures -->\n", encoding="utf-8")
    folder = tmp_path / "reports" / "h100" / "origin"
    folder.mkdir(parents=True)
    for name in ("config.yaml", "comparison.md", "fused.json", "baseline.json"):
        shutil.copy(REPORTS / "h100" / "origin" / name, folder / name)
    for name, source in (
        ("fused", find_variants()["fused"].source_sha256()),
        ("baseline", "0" * 64),
    ):
        path = folder / f"{name}.json"
        result = json.loads(path.read_text(encoding="utf-8"))
        result["variant"]["source_sha256"] = source
        path.write_text(json.dumps(result), encoding="utf-8")
    options = ["--page", page, "--reports", tmp_path / "reports"]
    assert run(readme, monkeypatch, *options) == 0
    assert "and have changed since: baseline; measure again: bt-bench" in capsys.readouterr().err
    assert run(readme, monkeypatch, "--check", *options) == 0
    assert run(readme, monkeypatch, "--fresh", *options) == 1
    (folder / "baseline.json").unlink()
    assert run(readme, monkeypatch, "--fresh", *options) == 0
    commit = result["environment"]["commit"][:7]
    assert f"Of commit {commit}, on one NVIDIA H100" in page.read_text(encoding="utf-8")


def test_what_cannot_be_written_is_refused(readme, tmp_path):
    block = "<!-- figures: {} -->\n<!-- end of figures -->"
    with pytest.raises(UsageError, match="there is no table 'steps'; expected one of all cases, c"):
        readme.written(block.format("steps"), REPORTS)
    folder = tmp_path / "h100" / "origin"
    folder.mkdir(parents=True)
    (folder / "comparison.md").write_text("nothing", encoding="utf-8")
    with pytest.raises(UsageError, match=r"comparison\.md has no figures for the table"):
        readme.written(block.format("a whole step by events"), tmp_path)


def test_figures_on_which_two_methods_disagree_are_marked(readme, tmp_path):
    folder = tmp_path / "h100" / "origin"
    folder.mkdir(parents=True)
    shutil.copy(REPORTS / "h100" / "origin" / "config.yaml", folder / "config.yaml")
    page = """## Whole step

| Config | Variant  | Step | Busy hot | Host jit |
| ------ | -------- | ---: | -------: | -------: |
| a      | baseline |    1 |       2¹ |        3 |
| a      | fused    |    4 |       5² |       6³ |

- ¹ methods disagree: 2 by events against 3 by profiler for the span on a busy GPU, L2 hot
  (tolerance 0.5 µs)
- ² methods disagree: 5 by events against 6 by profiler
- ³ something else

| Other | Table |
| ----- | ----: |
| a     |    7¹ |

- ¹ not this either
"""
    (folder / "comparison.md").write_text(page, encoding="utf-8")
    block = "<!-- figures: a whole step by regime -->\n<!-- end of figures -->"
    with pytest.raises(UsageError, match=r"comparison\.md has a footnote to '3 → 6³'; of the"):
        readme.written(block, tmp_path)
    assert ["a", "7¹"] in readme.tables_in(page)
    rows = readme.tables_in(page.replace("6³", "6"))
    assert readme._regimes(rows) == [["a", "1 → 4", "2† → 5†", "3 → 6"]]
    text = FIGURES.read_text(encoding="utf-8")
    assert (readme.IN_DOUBT in text) == (readme._DOUBT in text)


def test_the_range_over_all_cases_is_that_of_its_page(readme, tmp_path):
    folder = tmp_path / readme.TABLES["all cases"].folder
    folder.mkdir(parents=True)
    page = """# The worst of 3 cases

## The aims

|      | worst case | worst | aim | reached | median | aim | reached | best | cases | not known |
| ---- | ---------- | ----: | --: | ------: | -----: | --: | ------: | ---: | ----: | --------: |
| GPU  | a/few      |  1.25 | ≥ 1 |     yes |   2.50 | ≥ 1 |     yes | 5.00 |     3 |         0 |
| copy | –          |     – | ≥ 1 |      NO |      – | ≥ 1 |      NO |    – |     0 |         0 |

## By kind of case

| cases | number | host + stage | times less: host + stage | device | times less: device |
| ----- | -----: | -----------: | -----------------------: | -----: | -----------------: |
| long  |      3 |   1.0 to 2.0 |   3.0 to 4.0, median 3.5 |      – |                  – |

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
    }
    (folder / "worst.json").write_text(json.dumps({"measured": measured}), encoding="utf-8")
    block = "<!-- figures: all cases -->\n<!-- end of figures -->"
    text = readme.written(block, tmp_path)
    assert "|  | best | median | worst | worst case | cases |\n" in text
    assert "| GPU | 5.00 | 2.50 | 1.25 | a/few | 3 |\n" in text
    assert "copy" not in text
    kinds = readme.written("<!-- figures: cases by kind -->\n<!-- end of figures -->", tmp_path)
    assert "| long | 3 | 1.0 to 2.0 | 3.0 to 4.0, median 3.5 | – | – |\n\nOf commits" in kinds
    assert "Of commits 0123456 and fedcba9, on one NVIDIA H200 with torch 2.11.0 and" in text
    two = json.dumps({"measured": measured | {"num_gpus": 2}})
    (folder / "worst.json").write_text(two, encoding="utf-8")
    assert "on 2 NVIDIA H200s with torch 2.11.0 and" in readme.written(block, tmp_path)
    (stale,) = readme.changed_since(text, tmp_path)
    assert "are of commits 0123456 and fedcba9, and have changed since: fused; measure" in stale
