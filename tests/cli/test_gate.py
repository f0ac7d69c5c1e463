"""`bt-bench gate`: options, exit codes, files; with scripted workers, and once with real ones."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support import fake_rounds
from support.censuses import FAILS, take_made_up
from support.commands import RAISING_VARIANT, TINY, run, run_apart, start
from support.factories import make_case, make_environment, make_result
from support.forked import workers_forked
from support.processes import runs, wait_for
from support.refusals import refused
from support.repositories import KERNELS, commit, git, repository, write
from support.staging import STAGING

from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.reading import read_result
from bt_bench.results.files.writing import write_result
from bt_bench.results.gate.recording import read_recording
from bt_bench.results.run.nouns import Quantity
from bt_bench.suites.block_tables import operations as ops
from bt_bench.worker.compiling.census import take_census

FILE = '"""A variant."""\n'
LOOK = ("--rounds", "4", "--device", "cpu", "--time-equal")


def script(us, **more):
    return json.dumps({"one": {"us": us}} | more)


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """A repository whose variant takes 100 µs by script, and is the working directory."""
    files = {"mine/one.py": FILE, "mine/script.json": script(100.0), "my.yaml": STAGING}
    top = repository(tmp_path / "repo", files | {".gitignore": "reports/\nlog\n"})
    monkeypatch.chdir(top)
    monkeypatch.setattr("bt_bench.runs.gate.sides.Supervisor", fake_rounds.InProcess)
    return top


def gate(*options, config="my.yaml", base="HEAD"):
    return run("gate", "--config", config, "--base", base, "--kernels", "mine", *LOOK, *options)


def test_equal_revisions_are_the_same(repo):
    outcome = gate("--out", "out")
    assert outcome.code == 0, outcome.err
    assert "Verdicts: 2 SAME." in outcome.out
    assert "How it was compared" in gate("--all").out
    assert "after 4 rounds: 1 SAME" in outcome.err
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "recording.json",
        "report.html",
        "verdicts.json",
    ]
    assert "Verdicts: 2 SAME." in Path("out/report.html").read_text()
    recording = read_recording("out/recording.json")
    assert len(recording.rounds) == 4
    assert recording.tool.command[0] == "bt-bench"
    assert git(repo, "worktree", "list").count("\n") == 0


def test_a_slower_working_tree_is_a_regression_and_reports_are_written_before(repo):
    write(repo, {"mine/script.json": script(120.0)})
    outcome = gate("--format", "junit=reports/x/gate.xml", "--format", "md")
    assert outcome.code == 1
    assert "SLOWER" in outcome.out
    assert "<failure" in Path("reports/x/gate.xml").read_text()
    (folder,) = Path("reports").glob("gate-my-*")
    assert (folder / "verdicts.json").exists()


def test_a_faster_one_is_not_unless_asked_to(repo):
    write(repo, {"mine/script.json": script(80.0)})
    assert gate().code == 0
    assert gate("--fail-on", "faster").code == 1
    assert gate("--fail-on", "none").code == 0


def test_json_is_one_document_on_stdout(repo):
    document = gate("--json").json()
    assert document["schema_version"] == 3
    assert document["counts"]["SAME"] == 2  # the time, and the launches


def test_missing_variants(repo):
    write(repo, {"mine/two.py": FILE, "mine/script.json": script(100.0, two={"us": 1.0})})
    config = Path("my.yaml")
    config.write_text(STAGING.replace("[one]", "[one, two]"))
    outcome = gate()
    assert outcome.code == 4
    assert "has no variant two" in outcome.out
    assert gate("--allow-missing").code == 0
    assert gate("--variants", "two").code == 4
    assert "no variant in common" in gate("--variants", "two").err


def test_nothing_that_could_be_compared_never_passes(repo):
    write(repo, {"mine/script.json": json.dumps({"one": {"us": 1.0, "fault": "check tiny"}})})
    assert gate("--fail-on", "slower").code == 4
    outcome = gate("--fail-on", "none")
    assert outcome.code == 4
    assert "nothing of one@working tree could be compared: stage/tiny stage_us:" in outcome.err


def test_a_wrong_variant_is_a_failed_check(repo):
    write(repo, {"mine/script.json": json.dumps({"one": {"us": 1.0, "fault": "check tiny"}})})
    outcome = gate()
    assert outcome.code == 5
    assert "slot 3 is 17" in outcome.out


def test_the_threshold_is_that_of_the_flag_the_environment_or_the_config(repo, monkeypatch):
    write(repo, {"mine/script.json": script(106.0)})
    assert gate().code == 1
    assert gate("--threshold", "10").code == 0
    monkeypatch.setenv("BT_BENCH_THRESHOLD", "10")
    assert gate().code == 0
    assert gate("--threshold", "3").code == 1
    monkeypatch.delenv("BT_BENCH_THRESHOLD")
    Path("my.yaml").write_text(f"gate: {{margin_percent: 10, fail_on: [faster]}}\n{STAGING}")
    assert gate().code == 0
    assert gate("--threshold", "3", "--fail-on", "slower").code == 1
    Path("my.yaml").write_text(STAGING.replace("tokens: 4", "tokens: 4, margin_percent: 10"))
    assert gate().code == 0


def test_a_config_that_lost_a_case_or_a_variant_does_not_pass(repo):
    """Both revisions are measured by the head's config, so nobody else would miss it."""
    more = STAGING + "  - {name: more, requests: 1, tokens: 2}\n"
    files = {"mine/two.py": FILE, "mine/script.json": script(100.0, two={"us": 1.0})}
    write(repo, files | {"my.yaml": more.replace("[one]", "[one, two]")})
    commit(repo, "two of each")
    assert gate().code == 0
    write(repo, {"my.yaml": STAGING})
    outcome = gate("--json")
    assert outcome.code == 4
    missing = [j for j in outcome.json()["judgements"] if j["verdict"] == "MISSING"]
    assert {(j["case"], j["other"].partition("@")[0]) for j in missing} == {
        *(("more", "one"), ("more", "two"), ("tiny", "two"))
    }
    assert {j["detail"] for j in missing} == {"the base's config has it, but the head's does not"}
    # What flags leave out on both sides is not lost, and it may be allowed.
    assert gate("-k", "tiny", "--variants", "one").code == 0
    assert gate("--allow-missing").code == 0


def test_a_config_that_asks_for_less_is_told(repo):
    write(
        repo,
        {"my.yaml": "gate: {margin_percent: 30, looks: [4]}\n" + STAGING.replace("2, t", "1, t")},
    )
    said = " ".join(gate("--json").json()["warnings"])
    assert "case tiny has another workload in the base's config" in said
    assert "gate.margin_percent is 30.0, but the default in the base's config" in said
    write(repo, {"new.yaml": STAGING})
    (said,) = gate("--json", config="new.yaml").json()["warnings"]
    assert said.startswith("HEAD (")
    assert "has no new.yaml, so anything that the config has lost or changed" in said
    write(repo, {"my.yaml": "cases: none\n"})
    commit(repo, "damaged")
    write(repo, {"my.yaml": STAGING})
    (said,) = gate("--json").json()["warnings"]
    assert "the config cannot be read, so anything that the config has lost" in said


def test_looks_of_the_config(repo):
    Path("my.yaml").write_text(f"gate: {{looks: [3, 5]}}\n{STAGING}")
    arguments = ["gate", "--config", "my.yaml", "--base", "HEAD", "--kernels", "mine"]
    outcome = run(*arguments, "--device", "cpu", "--time-equal", "--out", "out")
    assert "after 3 rounds" in outcome.err
    assert len(read_recording("out/recording.json").rounds) in (3, 5)


def test_dry_run_lists_and_starts_nothing(repo, monkeypatch):
    monkeypatch.setattr("bt_bench.runs.gate.sides.Supervisor", None)
    outcome = gate("--dry-run")
    assert outcome.code == 0
    assert "working tree against HEAD (" in outcome.out
    assert "stage: stage_us" in outcome.out
    assert "cpu: 4 to 4 processes, or 8 if the machine is noisy" in outcome.out
    time = r"\n  time: about \d+( \w+)?( to \d+ \w+)? for 4 to 8 rounds, an estimate\n"
    assert re.search(time, outcome.out), outcome.out
    assert "to be found: a slowdown of 5 % or 0.15 µs, whichever is more" in outcome.out
    assert not Path("reports").exists()


def test_what_is_to_be_found(repo, monkeypatch):
    monkeypatch.setenv("BT_BENCH_DETECT", "3")
    outcome = gate("--dry-run", "--max-rounds", "4")
    assert "a slowdown of 3 % or 0.1 µs" in outcome.out
    assert "if the machine is noisy" not in outcome.out
    monkeypatch.delenv("BT_BENCH_DETECT")
    assert "a slowdown of 8 % or 0.24 µs" in gate("--dry-run", "--threshold", "4").out
    refused = gate("--dry-run", "--threshold", "4", "--detect", "4")
    assert refused.code == 2
    assert "--detect is 4, but slowdowns up to the margin of 4 % count as none" in refused.err
    write(Path.cwd(), {"mine.yaml": f"gate: {{detect_percent: 7}}\n{STAGING}"})
    assert "a slowdown of 7 % or 0.21 µs" in gate("--dry-run", config="mine.yaml").out


def test_a_gate_that_could_not_have_found_it(repo):
    """A head at the margin is neither found nor the same; the first line says what is missed."""
    write(repo, {"mine/script.json": script(101.5)})
    detect = ("--detect", "1.51", "--max-rounds", "4")
    outcome = gate(*detect)
    assert outcome.code == 0
    title, first, *_ = outcome.out.splitlines()
    assert title.startswith("Gate my")
    assert first.startswith("This gate could not have found a slowdown of 1.51 % or 0.1 µs")
    assert gate(*detect, "--require-power").code == 3
    assert gate("--require-power", "--time-equal", "--detect", "50").code == 0


def test_tracebacks_of_both_sides_are_printed_if_asked_for_and_equal_ones_once(repo, monkeypatch):
    class Failing(fake_rounds.InProcess):
        def __init__(self, setup, serve, on_traceback=None):
            super().__init__(setup, serve)
            if on_traceback is not None:
                on_traceback("Traceback \x1b …")
                on_traceback(f"File {setup.arms[-1].entry.path}")

    monkeypatch.setattr("bt_bench.runs.gate.sides.Supervisor", Failing)
    assert "Traceback" not in gate("--time-equal").err
    said = gate("--time-equal", "--traceback").err
    assert said.count("Traceback \\x1b …\n") == 1
    assert f"File {repo}/mine/one.py\n" in said  # the user's, not that of a copy that is gone
    assert "/head/mine" not in said


def test_a_static_gate_prints_tracebacks_too(tmp_path):
    (tmp_path / "raises.py").write_text(RAISING_VARIANT)
    (tmp_path / "tiny.yaml").write_text(TINY)
    static = ("gate", "--static", "--config", tmp_path / "tiny.yaml", "-k", "one")
    static += ("--operations", "gather_slots", "--kernels", tmp_path, "--variants", "raises")
    outcome = run(*static, "--save", tmp_path / "census.json", "--traceback")
    assert outcome.err.count("Traceback (most recent call last)") == 1
    assert "RuntimeError: no gather today" in outcome.err
    (tmp_path / "raises.py").write_text("import nowhere_at_all\n")
    outcome = run(*static, "--save", tmp_path / "census.json", "--traceback")
    assert "ModuleNotFoundError: No module named 'nowhere_at_all'" in outcome.err
    assert outcome.code == 2


def test_a_build_that_fails(repo):
    outcome = gate("--build", "echo no compiler; exit 7")
    assert outcome.code == 2
    assert "HEAD (" in outcome.err
    assert "ended with exit code 7" in outcome.err
    assert "no compiler" in outcome.err
    assert git(repo, "worktree", "list").count("\n") == 0
    write(repo, {"mine/new.py": FILE})
    outcome = gate("--build", "pwd; test ! -e mine/new.py")  # which fails in the head alone
    assert outcome.code == 2
    assert outcome.err.endswith(f"the end of its output:\nbt-bench: error:   {repo}\n")


def test_a_base_that_does_not_import_is_named(repo):
    write(repo, {"mine/one.py": "import nowhere\n"})
    commit(repo, "broken")
    write(repo, {"mine/one.py": FILE})
    outcome = _apart(repo, "HEAD", prologue=workers_forked(), forked=True)
    assert outcome.code == 2
    assert "HEAD (" in outcome.err
    assert "mine/one.py:1: the variant file does not import: ModuleNotFoundError" in outcome.err
    assert "bt-bench-gate-" not in outcome.err  # no path of a folder that is gone
    assert not list(Path("reports").glob("*"))


def _apart(repo, base, *options, **kwargs):
    return run_apart(
        *("gate", "--config", "my.yaml", "--base", base, "--kernels", "mine", *LOOK, *options),
        cwd=repo,
        **kwargs,
    )


def test_a_build_that_fails_where_a_parent_ignores_the_ends_of_children(repo):
    ignoring = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    outcome = _apart(repo, "HEAD", "--build", "exit 7", prologue=ignoring)
    assert outcome.code == 2, outcome
    assert "--build 'exit 7' ended with exit code 7" in outcome.err


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--base", "nowhere"], "--base nowhere: git: "),
        ([], "nothing to compare with; give --base REF, or --against FILE"),
        (["--base", "HEAD", "--against", "x.json"], "--base and --against both name"),
        (["--base", "HEAD", "--allow-partial"], "--allow-partial applies to a stored result"),
        (["--base", "HEAD", "--save", "x.json"], "--save writes a static census; give --static"),
        (["--base", "HEAD", "--rounds", "many"], "--rounds many: expected rising whole numbers"),
        (["--base", "HEAD", "--rounds", "3,1001"], "expected rising whole numbers up to 1000"),
        (["--base", "HEAD", "--out", "mine"], "--out mine exists already; expected a new folder"),
        (["--against", "x.json", "--rounds", "3"], "--rounds has no effect on a gate with"),
        (["--against", "x.json", "--build", "make"], "--build has no effect on a gate with"),
        (["--base", "HEAD", "--build-timeout", "9"], "--build-timeout has no effect without"),
        (
            ["--base", "HEAD", "--build", "sleep 600", "--build-timeout", "1"],
            "--build 'sleep 600' has not ended after 1 s; if it only needs longer, give it more "
            "with --build-timeout SECONDS",
        ),
        (["--base", "HEAD", "--rounds", "9,4"], "looks after 9, 4 rounds; expected ascending"),
        (["--base", "HEAD", "--fail-on", "slow"], "unknown verdict 'slow'; did you mean 'slower'"),
        (["--base", "HEAD", "--format", "jnuit"], "unknown format; did you mean 'junit'"),
        (["--base", "HEAD", "--format", "md", "--json"], "md and json would both go to stdout"),
        (["--base", "HEAD", "--metric", "gpu_us"], "--metric gpu_us: no such metric"),
    ],
)
def test_what_cannot_be_asked_for(repo, options, what):
    outcome = run("gate", "--config", "my.yaml", "--kernels", "mine", "--device", "cpu", *options)
    assert outcome.code == 2
    assert what in outcome.err.replace("\nbt-bench: error: ", " ")
    assert not Path("reports").exists()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ([], "nothing to do: give --base REF, --against CENSUS or --save FILE"),
        (["--base", "HEAD", "--rounds", "3"], "--rounds has no effect on a gate with --static"),
        (["--base", "HEAD", "--workers", "3"], "--workers has no effect on a gate with --static"),
        (["--base", "HEAD", "--gpus", "0,1"], "--gpus has no effect on a gate with --static"),
        (["--base", "HEAD", "--time-equal"], "--time-equal has no effect on a gate with --static"),
        (["--base", "HEAD", "--device", "cpu"], "--device has no effect on a gate with --static"),
        (["--save", "o.json", "--out", "o"], "--out has no effect on a census alone"),
        (["--base", "HEAD", "--out", "mine"], "--out mine exists already; expected a new folder"),
        (
            ["--against", "x", "--allow-partial"],
            "--allow-partial has no effect on a gate with --st",
        ),
        (["--base", "HEAD", "--alpha", "0.1"], "--alpha has no effect on a gate with --static"),
        (["--base", "HEAD", "--threshold", "9"], "--threshold has no effect on a gate with"),
        (["--base", "HEAD", "--metric", "gpu_us"], "--metric gpu_us: no such metric"),
        (["--against", "nowhere.json"], "nowhere.json does not exist; expected a static census"),
    ],
)
def test_what_a_static_gate_cannot_be_asked_for(repo, monkeypatch, options, what):
    monkeypatch.setattr("bt_bench.worker.take_census", None)  # nothing is compiled before
    assert what in refused("gate", "--config", "my.yaml", "--kernels", "mine", "--static", *options)


def test_the_environment_may_speak_of_other_gates(repo, monkeypatch):
    monkeypatch.setattr("bt_bench.worker.take_census", None)
    monkeypatch.setenv("BT_BENCH_ROUNDS", "3")
    monkeypatch.setenv("BT_BENCH_BASE", "HEAD")
    static = ["gate", "--config", "my.yaml", "--kernels", "mine", "--static"]
    outcome = run(*static, "--against", "nowhere.json")
    assert "nowhere.json does not exist" in outcome.err
    outcome = run(*static, "--dry-run")
    assert outcome.code == 0, outcome.err
    assert "working tree against HEAD, compiled for sm_80" in outcome.out


def test_without_a_gpu_it_says_what_can_be_done(repo, monkeypatch):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    outcome = run_apart(
        *("gate", "--config", "my.yaml", "--base", "HEAD", "--kernels", "mine"),
        cwd=repo,
        prologue=workers_forked(),
        forked=True,
    )
    assert outcome.code == 2
    assert "no GPU to run on" in outcome.err
    assert "--static compares the compiled kernels, and --device cpu" in outcome.err
    assert not Path("reports").exists() or not list(Path("reports").iterdir())


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A repository with the shipped kernels, which is the working directory."""
    config = STAGING.replace("[one]", "[fused]").replace("[stage]", "[step]")
    top = repository(tmp_path / "shipped", {"my.yaml": config, ".gitignore": "reports/\n"})
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(KERNELS, top / "kernels", ignore=ignored)
    commit(top, "kernels")
    monkeypatch.chdir(top)
    return top


def test_a_stored_result_is_compared_with_the_working_tree(shipped):
    sweep = ["sweep", "my.yaml", "--device", "cpu", "--set", "plan.instances=3"]
    sweep += ["--set", "plan.rounds=12"]
    assert run(*sweep, "--out", "stored").code == 0
    against = ["gate", "--config", "my.yaml", "--device", "cpu", "--against", "stored/fused.json"]
    outcome = run(*against, "--out", "out", "--json")
    judgements = {j["metric"]: j for j in outcome.json()["judgements"]}
    # What it says of the time is up to the machine; that it ends by what it says is not.
    said = judgements["stage_us"]["verdict"]
    assert outcome.code == {"SLOWER": 1, "INVALID": 5}.get(said, 0), outcome.err
    assert judgements["launches"]["verdict"] == "SAME"
    assert judgements["stage_us"]["advisory"]
    assert judgements["stage_us"]["other"] == "working tree"
    assert sorted(path.name for path in Path("out").iterdir()) == [
        *("comparison.md", "config.yaml", "fused.json", "report.html", "verdicts.json")
    ]
    outcome = run(*against, "--dry-run")
    assert outcome.code == 0
    assert "variant: fused\n  cases: tiny\n  operations: step" in outcome.out
    assert re.search(r"\n  time: about \d+ seconds, an estimate", outcome.out)
    assert not Path("reports").exists()
    more = Path("more.yaml")
    more.write_text(Path("my.yaml").read_text() + "  - {name: new, requests: 1, tokens: 2}\n")
    against[2] = "more.yaml"
    outcome = run(*against, "--out", "out2", "--format", "md")
    assert outcome.code in (1, 4)
    assert "fused.json has no such case; sweep again to store it" in " ".join(outcome.out.split())
    assert "no case in common with the config more; it has step/tiny" in refused(
        *against, "--operations", "apply", code=4
    )


AGAINST = """\
variants: [fused]
operations: [apply, step]
defaults: {max_num_reqs: 4, max_num_batched_tokens: 16, max_model_len: 64}
cases:
  - {name: one, requests: 2, tokens: 4}
  - {name: two, requests: 3, tokens: 4}
"""


def swept(names, operations=("apply", "step"), us=50.0, seed=0, **fields):
    """A result of `fused` with these cases, each with a host time of about so much."""
    noise = np.exp(0.002 * np.random.default_rng(seed).standard_normal(48))
    samples = {Quantity.HOST_US: [[float(value)] for value in us * noise]}
    cases = [make_case(n, ops.BY_NAME[o], samples) for n in names for o in operations]
    return make_result("fused", cases, **({"run_id": f"run{seed}"} | fields))


@pytest.fixture
def against(tmp_path, monkeypatch):
    """Gates the working tree, which takes as long as stored, against a result that is given."""
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(AGAINST)

    def sweep(options, device, folder):
        spec = options.spec
        names = [case.name for case in spec.cases]
        RunFolder(folder).path.joinpath("config.yaml").write_text("variants: [fused]\n")
        result = swept(names, spec.operations, seed=1)
        return read_result(write_result(RunFolder(folder), result))

    monkeypatch.setattr("bt_bench.cli.gate.against._sweep", sweep)

    def gate(stored, *options):
        path = Path("stored")
        path.mkdir(exist_ok=True)
        path = write_result(RunFolder(path), stored)
        arguments = ["--config", "my.yaml", "--device", "cpu", "--against", path]
        return run("gate", *arguments, "--json", *options)

    return gate


def missing(outcome):
    judgements = outcome.json()["judgements"]
    return {f"{j['operation']}/{j['case']}" for j in judgements if j["verdict"] == "MISSING"}


def test_a_stored_result_of_the_same_cases_passes(against):
    outcome = against(swept(["one", "two"]))
    assert outcome.code == 0, outcome.err
    assert missing(outcome) == set()
    assert against(swept(["one", "two"], us=5.0)).code == 1


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (("  - {name: two, requests: 3, tokens: 4}\n", ""), {"apply/two", "step/two"}),
        (("[apply, step]", "[step]"), {"apply/one", "apply/two"}),
        (("name: two", "name: new"), {"apply/two", "step/two", "apply/new", "step/new"}),
    ],
)
def test_what_the_config_lost_is_missing(against, change, lost):
    config = Path("my.yaml")
    config.write_text(AGAINST.replace(*change))
    assert config.read_text() != AGAINST
    outcome = against(swept(["one", "two"]))
    assert outcome.code == 4
    assert missing(outcome) == lost
    assert "the config my has no such case, so it was not measured" in outcome.out
    assert against(swept(["one", "two"]), "--allow-missing").code == 0
    # A regression in what is left is not hidden by it.
    assert against(swept(["one", "two"], us=5.0)).code == 1


def test_what_flags_leave_out_is_not_missing(against):
    stored = swept(["one", "two"])
    for options in (["-k", "one"], ["--operations", "step"], ["-k", "t*", "--operations", "apply"]):
        outcome = against(stored, *options)
        assert outcome.code == 0, outcome.err
        assert missing(outcome) == set()
        assert any(each.startswith("Left out by flags: ") for each in outcome.json()["scope"])
    # What both leave out is no excuse for what only the config does.
    Path("my.yaml").write_text(AGAINST.replace("[apply, step]", "[step]"))
    assert missing(against(stored, "-k", "one")) == {"apply/one"}


@pytest.mark.parametrize("names", [["one"], ["two"]])
def test_what_the_stored_result_lacks_is_missing(against, names):
    outcome = against(swept(names))
    assert outcome.code == 4
    assert missing(outcome) == {
        f"{o}/{n}" for o in ("apply", "step") for n in {"one", "two"} - {*names}
    }
    part = swept(["one", "two"])
    trimmed = part.model_copy(update={"cases": part.cases[:3]})
    outcome = against(trimmed)
    assert outcome.code == 4
    assert missing(outcome) == {"step/two"}
    assert against(trimmed, "--allow-missing").code == 0


def test_a_partial_stored_result_is_refused(against):
    part = swept(["one", "two"], complete=False)
    for options in ([], ["--fail-on", "none"], ["--allow-missing"]):
        outcome = against(part, *options)
        assert (outcome.code, outcome.out) == (4, "")
        assert "stored/fused.json is a partial result" in outcome.err
        assert "--resume DIR" in outcome.err
    Path("stored/config.yaml").write_text("variants: [fused]\n")
    assert "`bt-bench sweep --resume stored`" in against(part).err
    outcome = against(part, "--allow-partial")
    assert outcome.code == 0, outcome.err
    assert outcome.json()["warnings"] == ["fused.json is a partial result"]
    # What it has not reached is missing all the same.
    assert against(swept(["one"], complete=False), "--allow-partial").code == 4


@pytest.mark.parametrize("instances", [1, 2])
def test_a_plan_with_too_few_instances_is_refused_before_anything_is_measured(
    against, monkeypatch, instances
):
    measured = []
    monkeypatch.setattr("bt_bench.cli.gate.against._sweep", lambda *_: measured.append(1))
    few = swept(["one", "two"])
    few = few.model_copy(update={"plan": few.plan.model_copy(update={"instances": instances})})
    # Of what decides without a GPU, the times of staging.
    stage = {Quantity.STAGE_US: few.cases[0].measurements[0].samples}
    cases = [make_case(each.case, each.operation, stage) for each in few.cases]
    few = few.model_copy(update={"cases": cases, "environment": make_environment("cpu")})
    for options in ([], ["--metric", "stage_us"], ["--metric", "host_us+stage_us"]):
        outcome = against(few, *options)
        assert (outcome.code, outcome.out, measured) == (4, "", [])
        assert f"was measured with {instances} of plan.instances, too few" in outcome.err
        assert "compare counts alone with --metric launches" in outcome.err
    against(few, "--metric", "launches")
    assert measured == [1]


def test_a_variant_that_is_not_stored_is_not_asked_for(against):
    outcome = against(swept(["one", "two"]), "--variants", "baseline")
    assert outcome.code == 2
    assert "--variants names baseline, but stored/fused.json holds variant 'fused'" in outcome.err
    assert against(swept(["one", "two"]), "--variants", "fused,baseline").code == 0


@pytest.fixture
def one_target(monkeypatch):
    """Kernels are compiled for one target rather than all: a third of the time."""
    taken = partial(take_census, targets=["sm_90"])
    monkeypatch.setattr("bt_bench.worker.take_census", taken)


# A whole static gate that is not slow is the session of docs/static-gate.md.
@pytest.mark.slow
def test_what_is_compiled_is_compared_without_a_gpu(shipped, one_target):
    static = ["gate", "--config", "my.yaml", "--static"]
    outcome = run(*static, "--base", "HEAD", "--save", "census.json")
    assert outcome.code == 0, outcome.err
    path = shipped / "kernels/bt_kernels/variants/fused.py"
    path.write_text(
        path.read_text()
        + "\n    def prepare_step(self, *arguments):\n"
        + "        self.gather_block_tables(arguments[0], arguments[3])\n"
        + "        return super().prepare_step(*arguments)\n"
    )
    outcome = run(*static, "--against", "census.json", "--metric", "launches", "--json")
    assert outcome.code == 1, outcome.err
    found = {j["metric"]: j for j in outcome.json()["judgements"]}
    assert set(found) == {"launches"}
    assert found["launches"]["verdict"] == "SLOWER"
    assert found["launches"]["other_value"] == found["launches"]["base_value"] + 1


TWO_CASES = STAGING.replace("[one]", "[fused, baseline]").replace("[stage]", "[step]") + (
    "  - {name: small, requests: 3, tokens: 8}\n"
)


@pytest.fixture
def made_up(monkeypatch):
    """Nothing is compiled: each kernel has the figures that it always has."""
    monkeypatch.setattr("bt_bench.worker.take_census", take_made_up)


def test_a_stored_census_is_cut_to_what_flags_select(shipped, made_up):
    Path("my.yaml").write_text(TWO_CASES)
    static = ["gate", "--config", "my.yaml", "--static"]
    assert run(*static, "--save", "census.json").code == 0
    against = [*static, "--against", "census.json", "--json"]
    outcome = run(*against, "-k", "tiny", "--variants", "fused")
    assert outcome.code == 0, outcome.err
    judgements = outcome.json()["judgements"]
    assert {(j["case"], j["other"]) for j in judgements} == {("tiny", "fused@working tree")}
    # What the config lost is not what somebody left out, whatever metric is asked for.
    Path("my.yaml").write_text(TWO_CASES.replace("[fused, baseline]", "[fused]"))
    for options in ([], ["--metric", "registers"]):
        outcome = run(*against, *options)
        assert outcome.code == 4
        assert outcome.json()["counts"]["MISSING"] == 2
    # Nor is a variant whose file is gone unknown.
    Path("my.yaml").write_text(TWO_CASES)
    (shipped / "kernels/bt_kernels/variants/baseline.py").unlink()
    outcome = run(*against)
    assert outcome.code == 4, outcome.err
    assert outcome.json()["counts"]["MISSING"] == 2


def test_a_static_gate_has_a_page_which_is_written_again_from_both_censuses(shipped, made_up):
    static = ["gate", "--config", "my.yaml", "--static"]
    assert run(*static, "--save", "census.json").code == 0
    outcome = run(*static, "--against", "census.json", "--out", "gate")
    assert outcome.code == 0, outcome.err
    assert outcome.err.endswith("verdicts are in gate/\n")
    names = {"base-census.json", "head-census.json", "report.html", "verdicts.json"}
    assert {path.name for path in Path("gate").iterdir()} == names
    page = Path("gate/report.html")
    first = page.read_text()
    assert "No launch and no figure of any kernel has changed." in first
    page.unlink()
    assert run("report", "gate").code == 0
    assert page.read_text() == first.replace("census.json", "base-census.json").replace(
        "working tree", "head-census.json"
    )
    assert run("report", "census.json", "gate/head-census.json", "--out", "two.html").code == 0
    assert "Verdicts: 4 SAME." in Path("two.html").read_text()


def test_a_failure_has_no_figures_and_fails_whatever_metric_is_asked_for(shipped, made_up):
    Path("my.yaml").write_text(f"gate: {{metrics: [gpu_us]}}\n{Path('my.yaml').read_text()}")
    path = shipped / "kernels/bt_kernels/variants/fused.py"
    path.write_text(
        path.read_text() + f"\n    def prepare_step(self, *arguments):\n        {FAILS}\n"
    )
    static = ["gate", "--config", "my.yaml", "--static", "--base", "HEAD"]
    for options in ([], ["--metric", "registers"]):
        outcome = run(*static, *options)
        assert outcome.code == 5, outcome.err
        assert "no step" in outcome.out


def test_a_page_that_cannot_be_written_fails_no_gate(repo, monkeypatch):
    def no_space(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("bt_bench.results.write_run_file", no_space)
    outcome = gate("--out", "out")
    assert outcome.code == 0
    assert "warning: no page of this gate: No space left on device" in outcome.err
    assert "rounds and verdicts are in out/" in outcome.err


def test_a_recording_becomes_the_page_that_its_gate_wrote_by_the_same_rules(repo):
    write(repo, {"mine/script.json": script(103.0)})
    gate("--out", "out", "--threshold", "4", "--detect", "9", "--metric", "stage_us")
    before = Path("out/report.html").read_text()
    assert run("report", "out", "--out", "again.html").err == "bt-bench: wrote again.html\n"
    again = Path("again.html").read_text()
    for text in (before, again):
        assert "Verdicts: 1 SAME." in text
        assert "A slowdown of 9 %" in text
        assert "within the margin of 4 %" in text
    assert "does not have the rules" not in again


def test_a_gate_has_a_page_and_no_other_report(repo):
    gate("--out", "out")
    Path("out/other.json").write_text(Path("out/recording.json").read_text())
    assert run("report", "out/other.json").err == "bt-bench: wrote out/other.html\n"
    for options in (["--json"], ["--format", "md"]):
        said = refused("report", "out/recording.json", *options)
        assert "a recording of a gate has no such report, only a page" in said
    said = refused("report", "out", "--format", "html=a.html", "--out", "b.html")
    assert "--format has a file already" in said
    assert "would be HTML" in refused("report", "out", "--out", "b.md")


def test_a_recording_is_no_result(repo):
    gate("--out", "out")
    arguments = ["--device", "cpu", "--against", "out/recording.json"]
    assert "is a recording, not a result; `bt-bench selfcheck --recording FILE`" in refused(
        "gate", "--config", "my.yaml", *arguments
    )


@pytest.mark.slow
def test_a_real_gate_on_the_shipped_kernels(shipped):
    """Real checkout, real workers; the head stages with a pause, and launches one more a step."""
    top = shipped
    path = top / "kernels/bt_kernels/variants/fused.py"
    path.write_text(
        path.read_text()
        + "\n    def append_many(self, *arguments):\n"
        + "        import time\n"
        + "        time.sleep(0.005)\n"
        + "        super().append_many(*arguments)\n"
        + "\n    def prepare_step(self, *arguments):\n"
        + "        import torch\n"
        + "        torch.ones(1)\n"
        + "        return super().prepare_step(*arguments)\n"
    )
    outcome = run_apart(
        *("gate", "--config", "my.yaml", "--base", "HEAD", "--device", "cpu", "--rounds", "3"),
        *("--out", "out", "--json", "--threshold", "20"),
        cwd=top,
    )
    assert outcome.code == 1, outcome.err
    judgements = {(j["operation"], j["metric"]): j for j in outcome.json()["judgements"]}
    counted = judgements["step", "launches"]
    assert (counted["verdict"], counted["base_value"], counted["other_value"]) == ("SLOWER", 2, 3)
    assert judgements["stage", "launches"]["verdict"] == "SAME"
    judgement = judgements["stage", "stage_us"]
    assert judgement["other"] == "fused@working tree"
    assert judgement["other_value"] > 2000 > judgement["base_value"]
    assert git(top, "worktree", "list").count("\n") == 0


def is_there(group):
    """Whether a process of a group is alive."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_revision_is_built_leaves_nothing(number, tmp_path):
    """Neither a folder nor what the command has started; CI cancels with SIGTERM."""
    top = repository(tmp_path / "repo", {"my.yaml": STAGING, "mine/one.py": FILE})
    left, scratch = tmp_path / "pid", tmp_path / "scratch"
    scratch.mkdir()
    process = start(
        *("gate", "--config", "my.yaml", "--base", "HEAD", "--kernels", "mine", "--device", "cpu"),
        *("--build", f"sleep 600 & echo $! > {left}.new; mv {left}.new {left}; wait"),
        # As a terminal has it: under nohup SIGHUP is ignored, and stays so.
        prologue="import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        f"import tempfile; tempfile.tempdir = {str(scratch)!r}",
        cwd=top,
    )
    wait_for(left.exists)
    process.send_signal(number)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130, errors
    assert errors.endswith("bt-bench: interrupted\n")
    assert list(scratch.iterdir()) == []
    assert not (top / ".git/worktrees").exists()
    wait_for(lambda: not runs(int(left.read_text())))


# While its workers start, and in the middle of its rounds.
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.1, 1.0])
def test_ctrl_c_leaves_no_checkout_and_no_process(seconds, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    variant = f"{FILE}from bt_kernels.variants.fused import Variant as Variant\n"
    top = repository(tmp_path / "repo", {"my.yaml": STAGING, "mine/one.py": variant})
    process = start(
        *("gate", "--config", "my.yaml", "--base", "HEAD", "--kernels", "mine"),
        *("--device", "cpu", "--rounds", "30", "--time-equal"),
        prologue=f"import tempfile; tempfile.tempdir = {str(scratch)!r}",
        cwd=top,
        start_new_session=True,
    )
    heard = []
    for line in process.stderr:
        heard.append(line)
        if "setting up" in line:
            break
    assert "setting up" in heard[-1], heard
    time.sleep(seconds)
    assert len(list(scratch.glob("bt-bench-gate-*"))) == 2  # a folder, and its lock
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert list(scratch.iterdir()) == []
    # Python's own tracker of resources ends a moment after.
    wait_for(lambda: not is_there(process.pid))


def test_help_and_dry_run_import_neither_torch_nor_triton(repo):
    prologue = (
        "import sys\n"
        "from importlib.machinery import ModuleSpec\n"
        "class Never:\n"  # there, but not to be imported
        "    def find_spec(self, name, path=None, target=None):\n"
        "        return ModuleSpec(name, self) if name in ('torch', 'triton') else None\n"
        "    def create_module(self, spec):\n"
        "        raise AssertionError(spec.name)\n"
        "    def exec_module(self, module):\n"
        "        raise AssertionError(module)\n"
        "sys.meta_path.insert(0, Never())\n"
    )
    outcome = _apart(repo, "HEAD", "--dry-run", prologue=prologue)
    assert outcome.code == 0, outcome.err
