"""`bt-bench show`, and the commands that a report ends with."""

from __future__ import annotations

import json
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import run, run_apart
from support.committed import ORIGIN, unpack
from support.factories import make_case, make_failed_case, make_result

from bt_bench.cli.next_steps import command, next_lines, program
from bt_bench.results.run.nouns import Quantity


def test_a_run_is_shown_and_then_what_to_do_next():
    outcome = run("show", ORIGIN)
    assert outcome.code == 0
    assert outcome.out.startswith(
        "origin, 5 cases on NVIDIA H100 80GB HBM3, Intel(R) Xeon(R) Processor: "
    )
    assert "GPU time, µs (gpu_us)\n  small_batch_1grp" in outcome.out
    assert f"\nResults: {ORIGIN}/ (" in outcome.out
    assert f"show {ORIGIN} --all\n" in outcome.out


def test_all_are_the_tables_of_comparison_md():
    text = run("show", ORIGIN, "--all").out
    assert "Where the time of a step goes" in text
    assert "How to read this" in text
    assert "Next:" not in text
    figures = re.findall(r"\d+\.\d+", (ORIGIN / "comparison.md").read_text())
    assert set(figures) <= set(re.findall(r"\d+\.\d+", text))


def test_what_is_selected():
    outcome = run("show", ORIGIN, "--variants", "fused", "--operations", "step", "-k", "small*")
    assert "Selected by -k small*, --operations step: 1 of 10 cases." in outcome.out
    assert "medium_batch" not in outcome.out
    assert "one_launch" not in outcome.out
    whole = run("show", ORIGIN, "--variants", "fused", "-k", "small*", "--all").out
    assert "medium_batch" not in whole
    assert "one_launch" not in whole


def test_one_result_is_shown_without_changes():
    outcome = run("show", ORIGIN / "fused.json.xz", "--operations", "step")
    assert outcome.code == 0
    assert "Medians:" in outcome.out
    text = lzma.decompress((ORIGIN / "fused.json.xz").read_bytes()).decode()
    from_stdin = run("show", "-", stdin=text)
    assert from_stdin.code == 0


def test_json_has_all_cases_and_the_verdicts_of_compare():
    document = run("show", ORIGIN, "--variants", "fused", "--operations", "step", "--json").json()
    assert (document["schema_version"], document["kind"]) == (1, "run")
    assert (document["baseline"], document["others"]) == ("baseline", ["fused"])
    assert {case["operation"] for case in document["cases"]} == {"step"}
    assert len(document["cases"]) == 2 * 5
    first = document["cases"][0]
    assert (first["variant"], first["status"], first["launches"]) == ("baseline", "ok", [3])
    assert first["medians"]["host_us"] == pytest.approx(104.48, abs=0.01)
    compared = run("compare", ORIGIN, "--variants", "fused", "--operations", "step", "--json")
    judged = [each for each in compared.json()["judgements"] if each["case"] == first["case"]]
    mine = [each for each in document["judgements"] if each["case"] == first["case"]]
    assert mine == judged


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (ORIGIN.with_name("origni"),),
            "expected a run folder, a result file or a profile; did you mean '",
        ),
        (
            (ORIGIN.parent,),
            "holds no result file (<variant>.json); it holds the runs batches, layouts, origin",
        ),
        ((ORIGIN / "comparison.md",), "is not JSON"),
        ((ORIGIN, "-k", "smal_"), "-k 'smal_': no case matches"),
        ((ORIGIN, "--operations", "stpe"), "no operation 'stpe' in these results; did you mean"),
        ((ORIGIN, "--variants", "fuse"), "no variant 'fuse' in these results; did you mean"),
    ],
)
def test_what_cannot_be_shown(arguments, message):
    outcome = run("show", *arguments)
    assert outcome.code == 2
    assert message in " ".join(outcome.err.split())


def test_the_report_of_a_run_is_named_where_a_result_is_expected(tmp_path):
    path = tmp_path / "shown.json"
    path.write_text(run("show", ORIGIN, "--json").out)
    outcome = run("show", path)
    assert outcome.code == 2
    assert "report of a run" in " ".join(outcome.err.split())


def test_show_needs_neither_torch_nor_triton():
    blocked = "import sys\nsys.modules['torch'] = None\nsys.modules['triton'] = None"
    outcome = run_apart("show", ORIGIN, prologue=blocked)
    assert outcome.code == 0, outcome.err


def next_of(*results) -> list[str]:
    lines = list(next_lines(Path("reports/run"), results))
    commands = [line[9:].replace(program(), "bt-bench") for line in lines[1:]]
    assert commands.pop() == "bt-bench report reports/run"  # no page is there
    return commands


@pytest.mark.parametrize(
    ("names", "listed"),
    [
        (["report.html", "comparison.md", "fused.json"], "report.html, comparison.md, *.json"),
        (["comparison.md", "base.json", "fused.json.xz"], "comparison.md, *.json, *.json.xz"),
        (["fused.json.gz", "config.yaml"], "*.json.gz"),
    ],
)
def test_files_that_are_there_are_named_and_how_to_get_a_page(names, listed, tmp_path):
    for name in names:
        (tmp_path / name).touch()
    first, *others = next_lines(tmp_path, [make_result("baseline", FINE)], "bt-bench")
    assert first == f"Results: {tmp_path}/ ({listed})"
    asks_for_one = f"bt-bench report {tmp_path}" in others[-1]
    assert asks_for_one == ("report.html" not in names)


FINE = [make_case("a", samples={Quantity.STAGE_US: [[1.0]]})]


def test_a_variant_that_failed_is_not_named():
    base, fused = make_result("baseline", FINE), make_result("fused", FINE)
    wrong = make_result("wrong", [make_failed_case("a")])
    shown = "bt-bench show reports/run --all"
    assert next_of(base, fused) == ["bt-bench compare reports/run", shown]
    some = "bt-bench compare reports/run --variants fused"
    assert next_of(base, fused, wrong) == [some, shown]
    assert next_of(base, wrong) == [shown]
    # What is compared is `baseline`, wherever it stands.
    assert next_of(fused, wrong, base) == [some, shown]
    failed_base = make_result("baseline", [make_failed_case("a")])
    assert next_of(failed_base, fused) == [shown]


def test_names_of_folders_do_not_reach_the_terminal_raw():
    results = [make_result("baseline", FINE), make_result("fused", FINE)]
    assert all("\x1b" not in line for line in next_lines(Path("o\x1b[31m"), results))


def test_a_partial_run_is_to_be_continued():
    base = make_result("baseline", FINE, complete=False)
    assert next_of(base, make_result("fused", FINE, complete=False)) == [
        "bt-bench sweep --resume reports/run --device cuda",
        "bt-bench show reports/run --all",
    ]


@pytest.mark.parametrize(
    ("begun", "device"),
    [
        (
            ["sweep", "a", "--device", "cuda:1", "--vllm-source", "/v 1", "--vllm-source=w"],
            "cuda:1",
        ),
        (["sweep", "--device=auto", "--vllm-source", "/v 1", "--vllm-source", "w"], "cuda"),
        (["sweep", "a", "--profile", "--vllm-source", "/v 1", "--vllm-source", "w"], "cuda"),
    ],
)
def test_a_partial_run_is_continued_with_what_it_was_begun_with(begun, device):
    base = make_result("baseline", FINE, complete=False)
    base = base.model_copy(update={"tool": base.tool.model_copy(update={"command": begun})})
    sources = "--vllm-source '/v 1' --vllm-source w"
    profile = " --profile" * ("--profile" in begun)
    assert next_of(base, make_result("fused", FINE, complete=False))[0] == (
        f"bt-bench sweep --resume reports/run --device {device} {sources}{profile}"
    )


@pytest.mark.parametrize("whole", [[], ["--all"]])
def test_a_partial_run_says_how_far_it_is(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(ORIGIN, folder)
    unpack(folder)
    for path in folder.glob("*.json"):
        result = json.loads(path.read_text())
        result["complete"] = False
        result["cases"] = result["cases"][:2]
        path.write_text(json.dumps(result))
    outcome = run("show", folder, *whole)
    assert "2 of 10 cases are done for every variant" in " ".join(outcome.out.split())
    (folder / "config.yaml").unlink()
    outcome = run("show", folder, *whole)
    assert "2 cases are done for every variant" in " ".join(outcome.out.split())


@pytest.fixture
def installation(tmp_path, monkeypatch):
    """A virtual environment with the program, beside the working directory's other files."""
    programs = tmp_path / "an env" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "bt-bench"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return programs


def test_the_program_is_called_in_a_way_that_works(installation, monkeypatch, tmp_path):
    assert program() == "'an env/bin/bt-bench'"
    monkeypatch.setenv("PATH", f"{installation}:/usr/bin:/bin")
    assert program() == "bt-bench"
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(installation / "bt-bench", other)
    monkeypatch.setenv("PATH", f"{other}:{installation}")  # another installation comes first
    assert program() == "'an env/bin/bt-bench'"
    (installation / "bt-bench").unlink()
    assert program() == "'an env/bin/python' -m bt_bench"
    monkeypatch.chdir(other)
    assert program() == f"'{installation}/python' -m bt_bench"
    assert command("show", "a run") == f"'{installation}/python' -m bt_bench show 'a run'"


def test_the_command_that_is_named_runs_as_printed():
    line = next(line for line in run("show", ORIGIN).out.splitlines() if " --all" in line)
    root = ORIGIN.parents[2]
    ours = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'kernels'}"}
    done = subprocess.run(
        shlex.split(line), capture_output=True, text=True, timeout=120, check=False, env=ours
    )
    assert done.returncode == 0, done.stderr
    assert "How to read this" in done.stdout


def test_formats_go_to_files_and_stdout(tmp_path):
    page, table = tmp_path / "new" / "page.md", tmp_path / "table.txt"
    given = ("--format", f"md={page}", "--format", f"table={table}", "--format", "json")
    outcome = run("show", ORIGIN, *given)
    assert outcome.code == 0, outcome.err
    assert page.read_text(encoding="utf-8") == (ORIGIN / "comparison.md").read_text("utf-8")
    assert table.read_text(encoding="utf-8").startswith(
        "origin, 5 cases on NVIDIA H100 80GB HBM3, Intel(R) Xeon(R) Processor: "
    )
    assert outcome.out == run("show", ORIGIN, "--json").out
    selected = run("show", ORIGIN, "--format", "md", "--variants", "fused").out
    assert selected.startswith("# Comparison")
    assert "one_launch" not in selected.partition("How to read")[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--format", "html"), "--format html: unknown format; expected one of table, md, json"),
        (("--format", "md", "--json"), "md and json would both go to stdout"),
    ],
)
def test_formats_that_there_are_not(given, message):
    outcome = run("show", ORIGIN, *given)
    assert outcome.code == 2
    assert message in " ".join(outcome.err.split())
