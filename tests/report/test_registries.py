"""What is said to take one row, or one file and one line, takes no more than that.

Each test adds to a copy of the sources what `docs/architecture.md` says, and looks whether the rest
knows it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.factories import make_case, make_result, make_rounds

from bt_bench.results import Quantity, RunFolder, read_result, series_of
from bt_bench.results.files.writing import write_result

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^ {6}(OTHER_US = .*)$", re.MULTILINE)

Run = Callable[..., str]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    # What is compiled counts for the copies, too, which are as old as the files.
    ignored = shutil.ignore_patterns("*.csv.gz")
    shutil.copytree(ROOT / "bt_bench", tmp_path / "tree" / "bt_bench", ignore=ignored)
    return tmp_path / "tree"


@pytest.fixture
def in_copy(sources: Path) -> Run:
    environment = os.environ | {"PYTHONPATH": f"{sources}:{ROOT / 'kernels'}"}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            env=environment,
            cwd=sources,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run in which one variant takes a tenth longer, by `step_us`."""
    found = tmp_path / "run"
    found.mkdir()
    rng = np.random.default_rng(1)
    for variant, us in (("baseline", 20.0), ("fused", 22.0)):
        rows = [[us * rng.lognormal(0, 0.005)] for _ in range(24)]
        case = make_case(samples={series_of(Quantity.STEP_US): rows}, rounds=make_rounds(24, 4))
        write_result(RunFolder(found), make_result(variant, [case]))
    return found


def test_a_quantity_is_one_row(sources: Path, in_copy: Run, folder: Path) -> None:
    (row,) = ROW.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    nouns = sources / "bt_bench" / "results" / "run" / "nouns.py"
    text = nouns.read_text(encoding="utf-8")
    end = "\n    traits: Traits\n"
    assert text.count(end) == 1
    nouns.write_text(text.replace(end, f"    {row}\n{end}"), encoding="utf-8")
    for path in folder.glob("*.json"):
        path.write_text(path.read_text().replace('"step_us"', '"other_us"'))
    assert "other_us" in in_copy("-m", "bt_bench", "schema")
    compared = in_copy("-m", "bt_bench", "compare", str(folder), "--fail-on", "none", "--all")
    verdicts, _, exploratory = compared.partition("exploratory metrics")
    assert re.search(r"SLOWER +other_us ", verdicts)
    assert not exploratory
    assert "host_us, gpu_us and other_us" in " ".join(compared.split())
    tables = in_copy(
        "-c",
        "import sys; from pathlib import Path; from bt_bench.results import read_run; "
        "from bt_bench.report import render_comparison; "
        "print(render_comparison(read_run(Path(sys.argv[1]))))",
        str(folder),
    )
    assert "| Other (%) | " in tables
    assert re.search(r"\| Device \|.* Other \|", tables)


def test_a_format_is_one_file_and_one_line(sources: Path, in_copy: Run, folder: Path) -> None:
    formats = sources / "bt_bench" / "report" / "formats"
    (formats / "shout_format.py").write_text(
        "def render_shout(judged):\n    return f'{judged.title.upper()}!\\n'\n", encoding="utf-8"
    )
    listed = (formats / "__init__.py").read_text(encoding="utf-8")
    listed = listed.replace(
        "FORMATS: dict",
        "from bt_bench.report.formats.shout_format import render_shout\nFORMATS: dict",
    ).replace('    "table": render_table,', '    "table": render_table, "shout": render_shout,')
    (formats / "__init__.py").write_text(listed, encoding="utf-8")
    options = ("--format", "shout", "--all-metrics", "--fail-on", "none")
    said = in_copy("-m", "bt_bench", "compare", str(folder), *options)
    assert said == "FUSED AGAINST BASELINE!\n"


@pytest.fixture
def decodes(sources: Path, tmp_path: Path) -> Path:
    """A config with the kind of workload that the docs show, which is in the copy."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"`decodes.py`:\n\n  ```python\n(.*?)  ```\n", page, re.DOTALL)
    kinds = sources / "bt_bench" / "suites" / "block_tables" / "workloads" / "kinds"
    (kinds / "decodes.py").write_text(textwrap.dedent(code), encoding="utf-8")
    config = tmp_path / "decodes.yaml"
    config.write_text(
        "defaults: {max_num_reqs: 4, max_num_batched_tokens: 8, max_model_len: 64}\n"
        "operations: [stage]\n"
        "variants: [baseline, fused]\n"
        "cases:\n"
        '- {name: "some_{steps}", workload: decodes, product: {steps: [2, 3]}}\n',
        encoding="utf-8",
    )
    return config


def test_a_kind_of_workload_is_one_file(in_copy: Run, decodes: Path) -> None:
    cases = json.loads(in_copy("-m", "bt_bench", "workload", str(decodes), "--json"))["cases"]
    (first, described) = cases
    assert first["case"] == "some_2"
    assert (described["case"], described["kind"]) == ("some_3", "decodes")
    assert described["steps"]["num_steps"] == described["block_allocations"] == 3


@pytest.mark.slow
def test_a_new_kind_of_workload_is_swept_and_compared(
    in_copy: Run, decodes: Path, tmp_path: Path
) -> None:
    out = tmp_path / "swept"
    in_copy(
        *("-m", "bt_bench", "sweep", str(decodes), "--out", str(out), "--device", "cpu"),
        *("--set", "plan.rounds=12", "--set", "plan.instances=3"),
    )
    said = in_copy("-m", "bt_bench", "compare", str(out), "--fail-on", "none", "--json")
    judged = {(j["case"], j["metric"]) for j in json.loads(said)["judgements"]}
    assert judged >= {("some_2", "stage_us"), ("some_3", "stage_us")}


def test_the_docs_list_every_quantity() -> None:
    page = (ROOT / "docs" / "measurement.md").read_text(encoding="utf-8")
    table = page.split("## Quantities")[1].split("\n\n[")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(Quantity)


def test_the_committed_row_would_be_new(folder: Path) -> None:
    assert "other_us" not in set(Quantity)
    assert read_result(folder / "fused.json").cases[0].measurements[0].quantity == "step_us"
