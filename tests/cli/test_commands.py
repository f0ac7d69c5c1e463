"""The commands other than `sweep`, and what all of them promise."""

from __future__ import annotations

import re
import shlex
from datetime import date
from pathlib import Path

import jsonschema
import pytest
from support.commands import run, run_apart
from support.refusals import refused
from support.suites import write_suite

from bt_bench.results import Reason, ReasonCode
from bt_bench.runs.check import Outcome

COMMANDS = ("sweep", "check", "overhead", "show", "compare", "workload", "list", "env", "schema")
COMMANDS += (
    "calibrate",
    "gate",
    "selfcheck",
    "profile",
    "report",
    "archive",
    "replay",
    "patch",
    "merge",
)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns_and_names_no_types(command):
    text = run(*command.split(), "--help").out
    assert max(map(len, text.splitlines())) <= 80
    assert re.findall(r"<[a-z\[]+>?", text) == []
    # Nothing is cut: an ellipsis is only where a list goes on.
    assert text.replace("A,B,…", "").replace("N,…", "").count("…") == 0


def test_version():
    assert run("--version").out.startswith("bt-bench 0.")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command):
    for flag in ("-h", "--help"):
        outcome = run(command, flag)
        assert outcome.code == 0
        assert f"bt-bench {command}" in outcome.out
        assert "Example" in outcome.out


def imported_by(*arguments):
    """Modules that a command has imported when it ends."""
    outcome = run_apart(
        *arguments,
        prologue="import atexit, sys\n"
        "atexit.register(lambda: print('MODULES', *sys.modules, file=sys.stderr))",
    )
    assert outcome.code == 0, outcome.err
    return set(outcome.err.rpartition("MODULES")[2].split())


HEAVY = {"torch", "triton", "pandas", "numpy", "ruamel.yaml", "nvtx"}


@pytest.mark.parametrize("arguments", [("--help",), ("sweep", "--help"), ("--version",)])
def test_help_imports_nothing_heavy(arguments):
    # The help of commands has defaults of the plan, whose pydantic looks for plugins.
    light = {"importlib.metadata", "json", "hashlib"} if "sweep" not in arguments else set()
    assert imported_by(*arguments) & (HEAVY | light) == set()


def test_list_and_schema_import_no_torch():
    assert imported_by("list") & {"torch", "triton", "pandas"} == set()
    assert imported_by("schema") & {"torch", "triton", "pandas"} == set()


# Ends where a worker would be started, and says what heavy modules there are by then.
WITHOUT_WORKERS = """\
import os, sys
import bt_bench.worker
class NoWorker:
    def __init__(self, *setup): pass
    def __enter__(self):
        print("heavy:", *{"torch", "triton", "pandas"} & set(sys.modules), file=sys.stderr)
        sys.stderr.flush()
        os._exit(0)
    def __exit__(self, *error): pass
    def close(self): pass
    start = __enter__
bt_bench.worker.Supervisor = NoWorker
"""


@pytest.mark.parametrize("command", ["sweep", "check"])
def test_the_first_line_comes_before_torch_is_loaded_here_or_in_a_worker(command, config):
    outcome = run_apart(command, config, "--operations", "step", prologue=WITHOUT_WORKERS)
    assert outcome.err.splitlines() == [
        "bt-bench: tiny: 2 cases × 1 operation × 2 variants; loading torch and the variants",
        "heavy:",
    ]
    assert outcome.out == ""


@pytest.mark.parametrize("command", [("calibrate", "--quick"), ("overhead",)])
def test_what_runs_without_a_worker_says_so_before_it_loads_torch(command):
    blocked = "import sys\nsys.modules['torch'] = None"
    outcome = run_apart(*command, prologue=blocked)
    assert "which loads torch first" in outcome.err.splitlines()[0]
    assert "import of torch halted" in outcome.err


def test_check(config):
    checked = ("check", config, "--variants", "fused", "--operations", "step")
    outcome = run(*checked, checks=None)
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "ok      fused · 26 checks of 26 workloads",
        "skipped fused · 6 checks of 6 workloads · takes the interpreter minutes; checked on a GPU",
        "26 passed, 0 failed, 6 skipped, on cpu",
    ]
    each = run(*checked, "--all", checks=None).out.splitlines()
    assert "ok      fused · conformance:corners · step" in each
    assert len(each) == 33


def test_what_was_checked_until_ctrl_c_is_told(config, monkeypatch):
    def two_and_then_ctrl_c(_places, _spec, _arms, on_outcome, *_):
        lacks = Reason(code=ReasonCode.UNSUPPORTED, message="lacks dummy_requests")
        on_outcome(Outcome("fused", "one", "step", None, 3))
        on_outcome(Outcome("fused", "one", "apply", None, 3))
        on_outcome(Outcome("fused", "two", "step", lacks, 0))
        raise KeyboardInterrupt

    monkeypatch.setattr("bt_bench.runs.check_spec", two_and_then_ctrl_c)
    outcome = run("check", config, "--variants", "fused", "--explore", "0")
    assert outcome.code == 130
    assert outcome.out.splitlines() == [
        "ok      fused · 2 checks of 1 workload",
        "skipped fused · 1 check of 1 workload · lacks dummy_requests",
    ]


def test_check_json(config):
    document = run("check", config, "--variants", "fused", "--operations", "step", "--json").json()
    assert [check["workload"] for check in document["checks"]][-2:] == ["one", "two"]
    assert {check["status"] for check in document["checks"]} == {"ok"}


def test_check_explores(config):
    explored = ("check", config, "--variants", "fused", "--scenario", "1", "--json")
    document = run(*explored).json()
    assert document["checks"] == []
    (found,) = document["explored"]
    assert (found["variant"], found["status"], found["scenarios"]) == ("fused", "ok", 1)
    assert found["lines"] is None


def test_paths_of_no_scenario_are_refused(config):
    assert "--explore 0 plays none" in refused("check", config, "--require-paths", "--explore", "0")


@pytest.mark.parametrize("count", ["15.0", "15s", "-1", "x", ""])
def test_check_explores_by_scenarios_and_not_by_seconds(config, count):
    assert f"--explore {count}: expected a number of scenarios" in refused(
        "check", config, f"--explore={count}"
    )


def test_check_explores_with_a_seed(config):
    explored = "check", config, "--variants", "fused", "--scenario", "1", "--json"
    documents = [run(*explored, *options).json() for options in ((), ("--seed", "7"))]
    assert [document["seed"] for document in documents] == [0, 7]
    today = int(f"{date.today():%Y%m%d}")
    assert run(*explored, "--deep").json()["seed"] >= today


@pytest.mark.parametrize("option", [("--deep",), ("--seed", "7")])
def test_scenarios_of_a_file_are_not_drawn_anew(config, tmp_path, option):
    path = tmp_path / "it-0.json"
    assert "leave out --seed and --deep" in refused("check", config, "--scenario", path, *option)


def test_the_command_that_repeats_a_fault_has_all_that_it_needs(config, tmp_path, monkeypatch):
    """It is a shell's line, and plays what is in the file, which it leaves as it is."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my  kernels"
    folder.mkdir()
    text = "from bt_kernels.variants.fused import Variant as Fused\n\n\nclass Variant(Fused):\n"
    text += "    def apply_staged_writes(self):\n        raise RuntimeError('never')\n"
    (folder / "mine.py").write_text(text)
    given = ("--kernels", folder, "--variants", "mine", "--device", "cpu")
    outcome = run("check", config, "--operations", "stage", *given, "--scenario", "1")
    again = outcome.out.partition("again: ")[2].splitlines()[0]
    words = shlex.split(again)
    assert words[:2] == ["bt-bench", "check"]
    stored = Path(words[-1])
    before = stored.read_text()
    repeated = run(*words[1:])
    assert repeated.code == 5
    assert "RuntimeError: never" in repeated.out
    assert f"of {stored} in" in repeated.out
    assert stored.read_text() == before
    assert [path.name for path in stored.parent.iterdir()] == [stored.name]


@pytest.mark.parametrize("scenario", ["x", "-1", "3-", "5-2", "1-x"])
def test_check_refuses_a_scenario(config, scenario):
    assert f"--scenario {scenario}" in refused("check", config, f"--scenario={scenario}")


def test_check_requires_paths(config, kernels):
    text = """\
\"\"\"fused, with a line for giants.\"\"\"

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    def apply_staged_writes(self):
        if self.layout.max_num_reqs > 30_000:EXCUSE
            self.num_dirty_rows = 0
        super().apply_staged_writes()
"""
    arguments = ("check", config, "--kernels", kernels, "--variants", "giants", "--scenario", "1")
    (kernels / "giants.py").write_text(text.replace("EXCUSE", ""), encoding="utf-8")
    outcome = run(*arguments, "--paths")
    assert outcome.code == 0
    assert "giants.py:9, Variant.apply_staged_writes" in outcome.out
    assert "one way only: " in outcome.out
    assert "0 of 1 branches of their own code went both ways" in outcome.out
    outcome = run(*arguments, "--require-paths")
    assert outcome.code == 5
    assert "giants: 1 lines of its own code were not reached, and 1 branches" in outcome.err
    excused = text.replace("EXCUSE", "  # unreached: no layout is as large")
    (kernels / "giants.py").write_text(excused, encoding="utf-8")
    outcome = run(*arguments, "--require-paths")
    assert outcome.code == 0
    assert "not reached" not in outcome.out


def test_list():
    outcome = run("list")
    for name in ("baseline", "fused_gather_slots", "gather_slots", "azure_conv"):
        assert f"  {name} " in outcome.out
    document = run("list", "--json").json()
    assert {config["name"] for config in document["configs"]} == {
        "azure_code",
        "azure_conv",
        "features",
        "layouts",
        "origin",
        "production",
        "quick",
        "shapes",
    }
    assert all(variant["summary"] for variant in document["variants"])


def test_list_shows_a_folder_of_variants(tmp_path):
    (tmp_path / "mine.py").write_text('"""My own."""\nthis does not parse\n')
    outcome = run("list", "--kernels", tmp_path)
    assert outcome.code == 0
    assert "  mine " in outcome.out


def test_a_broken_config_keeps_nothing_else_from_being_listed(tmp_path):
    folder = write_suite(tmp_path / "mine")
    (folder / "configs/broken.yaml").write_text("cases: [\n")
    (folder / "configs/odd.yaml").write_text("cases: [{name: a, rows: 0}]\n")
    outcome = run("list", "--suite", folder)
    assert outcome.code == 0
    assert re.search(r"^  tiny +Two sizes \(2 cases\)$", outcome.out, re.MULTILINE)
    assert re.search(r"^  broken +cannot be read: broken.yaml:2:1: not", outcome.out, re.MULTILINE)
    document = run("list", "--suite", folder, "--json").json()
    assert [config["name"] for config in document["configs"]] == ["tiny"]
    assert [config["name"] for config in document["unreadable_configs"]] == ["broken", "odd"]


def test_a_misspelt_environment_variable_is_reported(monkeypatch):
    for name in ("BT_BENCH_VARIANTS", "BT_BENCH_COMMIT", "BT_BENCH_PYTHONPATH"):
        monkeypatch.setenv(name, "fused")
    assert run("schema").err == ""
    monkeypatch.setenv("BT_BENCH_VARIANT", "fused")
    outcome = run("schema")
    assert outcome.code == 0
    assert outcome.err == (
        "bt-bench: warning: environment variable BT_BENCH_VARIANT is not used; did you mean "
        "'BT_BENCH_VARIANTS'?\n"
    )


def test_env():
    assert "torch" in run("env").out
    document = run("env", "--json").json()
    assert document["device"] == "cpu"
    assert document["interpreted"] is True


def test_env_says_what_falls_back(monkeypatch):
    monkeypatch.setenv("BT_KERNELS_NATIVE", "0")
    reason = "the environment has BT_KERNELS_NATIVE=0; unset it"
    lines = run("env").out.splitlines()
    assert f"  staging in C      not in use ({reason})" in lines
    assert "  CUPTI             does not apply" in lines
    helpers = run("env", "--json").json()["helpers"]
    assert helpers["staging_in_c"] == {"in_use": False, "why_not": reason}
    assert helpers["nvml"] is None
    assert helpers["nvtx"]["in_use"] is True


def test_schema_is_a_schema():
    document = run("schema").json()
    jsonschema.Draft202012Validator.check_schema(document)


def test_workload(config):
    outcome = run("workload", config)
    assert outcome.code == 0
    assert "one (uniform)" in outcome.out
    assert "block ids written" in outcome.out
    document = run("workload", config, "-k", "two", "--json").json()
    assert [case["case"] for case in document["cases"]] == ["two"]


def test_workload_of_a_trace(tmp_path, monkeypatch):
    """A short one: to schedule the shipped ones takes half a minute."""
    rows = "".join(f"2023-11-16 18:17:{at:02}.0,{100 + at},{10 + at % 7}\n" for at in range(40))
    (tmp_path / "short.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "traced.yaml"
    config.write_text(
        "variants: [fused]\n"
        "cases:\n"
        "  - name: mine\n"
        "    workload: trace\n"
        "    trace: short.csv\n"
        "    max_num_reqs: 8\n"
        "    max_model_len: 512\n"
        "    window: {at: busiest, steps: 4}\n"
    )
    outcome = run("workload", config)
    assert outcome.code == 0, outcome.err
    assert "trace: 40 requests" in outcome.out
    assert "Window 'busiest'" in outcome.out


def test_environment_variables_are_below_flags(config, monkeypatch):
    monkeypatch.setenv("BT_BENCH_DEVICE", "cuda")
    assert run("check", config, "--variants", "fused").code == 2
    monkeypatch.setenv("BT_BENCH_VARIANTS", "fused")
    outcome = run("check", config, "--device", "cpu", "--operations", "apply")
    assert outcome.code == 0
    assert "baseline" not in outcome.out
