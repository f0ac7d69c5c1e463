"""The page on CI: its pipelines are YAML, and say what the action and the gate know."""

from __future__ import annotations

import re
from pathlib import Path

from ruamel.yaml import YAML
from support.commands import run

from bt_bench.analysis.deciding import DEFAULT_FAIL_ON
from bt_bench.analysis.verdicts import Verdict
from bt_bench.base.errors import ExitCode
from bt_bench.report.formats import FORMATS
from bt_bench.report.formats.junit_format import OUTCOMES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
ACTION = YAML(typ="safe").load(ROOT / "action.yml")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def pipelines():
    return [YAML(typ="safe").load(text) for text in blocks("yml")]


def cells(section, marker):
    """First cells of the rows of a section's table that begin with a name or a number."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return re.findall(rf"^\| ({marker}) \|", text, re.MULTILINE)


def test_the_workflow_uses_the_action_as_it_is():
    workflow, *_ = pipelines()
    steps = workflow["jobs"]["static"]["steps"]
    assert steps[0]["uses"].startswith("actions/checkout@")
    assert steps[0]["with"]["fetch-depth"] == 2
    inputs = steps[-1]["with"]
    assert set(inputs) <= set(ACTION["inputs"])
    required = {name for name, entry in ACTION["inputs"].items() if entry.get("required")}
    assert required <= set(inputs)


def test_all_inputs_are_described_with_their_defaults():
    assert cells("GitHub", "`[a-z-]+`") == [f"`{name}`" for name in ACTION["inputs"]]
    for name, entry in ACTION["inputs"].items():
        if entry.get("default") and name != "install":
            assert f"| `{name}` | `{entry['default']}` |" in PAGE


def test_gitlab_reads_the_report_that_the_gate_writes():
    _, pipeline, _ = pipelines()
    report = pipeline["gate"]["artifacts"]["reports"]["junit"]
    assert f"--format junit={report}" in pipeline["gate"]["script"]
    assert pipeline["gate"]["artifacts"]["when"] == "always"


def test_the_matrix_has_all_shards_and_merges_what_they_leave(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    *_, matrix = pipelines()
    shard, merged = (matrix["jobs"][name] for name in ("shard", "gate"))
    numbers = shard["strategy"]["matrix"]["shard"]
    assert numbers == [*range(1, len(numbers) + 1)]
    (gate,) = [step["run"] for step in shard["steps"] if "run" in step]
    assert f"--shard ${{{{ matrix.shard }}}}/{len(numbers)} --out gates/" in gate
    (_, merge) = [step["run"] for step in merged["steps"] if "run" in step]
    assert "bt-bench merge gates/* --out gate " in merge
    for line in (gate, merge):
        command = line.split()[1]
        listed = run(command, "--help").out
        assert all(f"{option} " in listed for option in re.findall(r" (--[a-z-]+)", line))
    kept = [
        step["with"]["path"]
        for step in (*shard["steps"], *merged["steps"])
        if "path" in step.get("with", ())
    ]
    assert kept == ["gates", "gates", "gate"]
    assert merged["needs"] == "shard"
    assert merged["if"] == "${{ !cancelled() }}"


def test_lines_that_call_the_gate_have_options_and_formats_that_exist(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    listed = run("gate", "--help").out
    lines = re.findall(r"bt-bench (gate --config .*)", "\n".join((*blocks("sh"), *blocks("yml"))))
    assert len(lines) == 7
    for line in lines:
        for option in re.findall(r" (--[a-z-]+)", line):
            assert f"{option} " in listed, option
        for name in re.findall(r"--format ([a-z-]+)", line):
            assert name in FORMATS


def test_exit_codes_and_verdicts_are_all_there():
    codes = [code for cell in cells("Exit codes", r"[\d, ]+") for code in cell.split(", ")]
    assert sorted(map(int, codes)) == sorted(ExitCode)
    shown = [word for cell in cells("What JUnit shows", "[`A-Z, ]+") for word in cell.split(", ")]
    assert sorted(shown) == sorted(f"`{verdict}`" for verdict in Verdict)
    words = {"failure": "failed", "error": "error", "skipped": "skipped", None: "passed"}
    for verdict in Verdict:
        (row,) = [line for line in PAGE.splitlines() if re.match(rf"\| .*`{verdict}`.* \|", line)]
        assert f"| {words[OUTCOMES.get(verdict)]}" in row


def test_what_fails_by_default_is_said():
    (row,) = [line for line in PAGE.splitlines() if line.startswith("| `fail-on` ")]
    assert all(verdict.value in row for verdict in DEFAULT_FAIL_ON)
