"""The GitHub Action: its form, and what its script runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from support.commands import run
from support.repositories import write

ROOT = Path(__file__).parents[2]
ACTION = YAML(typ="safe").load(ROOT / "action.yml")
STEPS = ACTION["runs"]["steps"]
(GATE,) = [step for step in STEPS if step.get("id") == "gate"]

# Stands in for python: notes its arguments, a line each, and ends as it is told to.
FAKE_PYTHON = """#!/bin/bash
printf '%s\\n' "$@" > "$NOTED"
printf '%s %s\\n' "${PYTHONPATH-none}" "$BT_BENCH_PYTHONPATH" > "$NOTED.path"
exit "$ENDS_WITH"
"""


def test_it_is_a_composite_action():
    assert set(ACTION) == {"name", "description", "inputs", "outputs", "runs"}
    assert ACTION["runs"]["using"] == "composite"
    for step in STEPS:
        assert step["shell"] == "bash"
        assert step["name"]
        assert set(step) <= {"name", "id", "shell", "env", "run", "working-directory"}


def test_inputs_are_described_and_texts():
    for name, entry in ACTION["inputs"].items():
        assert entry["description"], name
        assert ("default" in entry) != entry.get("required", False), name
        assert isinstance(entry.get("default", ""), str), name
    for name, entry in ACTION["outputs"].items():
        assert entry["value"] == f"${{{{ steps.gate.outputs.{name} }}}}"
        assert f'"{name}=' in GATE["run"]


def test_no_input_is_pasted_into_a_script():
    used = set()
    for step in STEPS:
        assert "${{" not in step["run"]
        for value in (*step["env"].values(), step.get("working-directory", "")):
            used |= set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", value))
    assert used == set(ACTION["inputs"])


@pytest.fixture
def gate(tmp_path):
    """Runs the script as the runner does, with inputs, and gives arguments, outputs and code."""
    fake = tmp_path / "bin" / "python"
    fake.parent.mkdir()
    fake.write_text(FAKE_PYTHON, encoding="utf-8")
    fake.chmod(0o755)
    noted, outputs = tmp_path / "noted", tmp_path / "outputs"

    def run_gate(ends_with=0, **inputs):
        values = {name: entry.get("default", "") for name, entry in ACTION["inputs"].items()}
        values |= {name.replace("_", "-"): value for name, value in inputs.items()}
        env = {
            name: values[re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)[1]]
            for name, value in GATE["env"].items()
        }
        env |= {"PATH": f"{fake.parent}:/usr/bin:/bin", "GITHUB_OUTPUT": str(outputs)}
        env |= {"NOTED": str(noted), "ENDS_WITH": str(ends_with), "PYTHONPATH": "lib:src"}
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", GATE["run"]]
        done = subprocess.run(shell, env=env, cwd=tmp_path, capture_output=True, text=True)
        words = noted.read_text().splitlines() if noted.exists() else None
        told = (
            dict(line.split("=", 1) for line in outputs.read_text().splitlines()) if words else {}
        )
        return words, told, done

    return run_gate


def test_what_is_run_by_default(gate, tmp_path):
    words, told, done = gate(config="gate.yaml")
    junit = str(tmp_path / "bt-bench-junit.xml")
    assert words == [
        *("-P", "-m", "bt_bench", "gate", "--config", "gate.yaml", "--format", "github"),
        *("--format", f"junit={junit}", "--base", "HEAD^"),
    ]
    assert told == {"junit": junit, "exit-code": "0"}
    assert done.returncode == 0


def test_what_is_run_with_all_inputs(gate, tmp_path):
    words, told, _ = gate(
        config="my gate.yaml",
        against="census.json",
        static="true",
        kernels="first\nthe second\n",
        fail_on="slower,inconclusive",
        args="--threshold\n3\n\n-k\ntwo words; $(touch pwned)\n",
        junit=f"{tmp_path}/out/x.xml",
    )
    assert words[5:] == [
        *("my gate.yaml", "--format", "github", "--format", f"junit={tmp_path}/out/x.xml"),
        *("--against", "census.json", "--static", "--kernels", "first", "--kernels", "the second"),
        *("--fail-on", "slower,inconclusive"),
        *("--threshold", "3", "-k", "two words; $(touch pwned)"),
    ]
    # The path is for what is measured, and not for what measures.
    assert (tmp_path / "noted.path").read_text() == "none lib:src\n"
    assert told["junit"] == f"{tmp_path}/out/x.xml"
    assert (tmp_path / "out").is_dir()
    assert not (tmp_path / "pwned").exists()


def test_the_checkout_cannot_replace_what_measures(tmp_path):
    """Neither by the working directory nor by PYTHONPATH, with the words of the script itself."""
    for name in ("bt_bench", "pip"):
        write(tmp_path, {f"{name}/__init__.py": "", f"{name}/__main__.py": "print('replaced')\n"})
    scripts = [step["run"].replace("\\\n", " ") for step in STEPS]
    commands = [re.search(r"env -u .*python -P -m (\w+)", script) for script in scripts]
    assert [command[1] for command in commands] == ["pip", "bt_bench"]
    for command in commands:
        env = os.environ | {
            "PYTHONPATH": str(tmp_path),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        shell = ["bash", "-c", f"{command[0]} --version"]
        done = subprocess.run(shell, env=env, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert re.match(r"(pip|bt-bench) \d", done.stdout)


@pytest.mark.parametrize("code", [0, 1, 4, 70])
def test_the_exit_code_is_that_of_the_gate(gate, code):
    _, told, done = gate(ends_with=code, config="gate.yaml")
    assert done.returncode == code
    assert told["exit-code"] == str(code)


def test_a_wrong_switch_is_no_silent_pass(gate):
    words, _, done = gate(config="gate.yaml", static="yes")
    assert words is None
    assert done.returncode == 2
    assert "static must be true or false" in done.stdout


def test_the_gate_has_every_option_that_the_action_uses(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    listed = run("gate", "--help").out
    used = set(re.findall(r"(--[a-z][a-z-]+)", GATE["run"]))
    assert used == {
        *("--config", "--format", "--against", "--base", "--static", "--kernels", "--fail-on"),
    }
    assert not [option for option in used if f"{option} " not in listed]
