"""No code of a suite or of a variant decides how a command ends, or on what is configured."""

from __future__ import annotations

import textwrap

import pytest
from support.commands import ONE_CHECK, run, run_apart
from support.repositories import commit, repository, write
from support.staging import STAGING
from support.suites import VARIANT, write_suite

# What code of a user may do to a process so that it ends well, whatever was found.
ENDINGS = {
    "at its end": "import atexit, os; atexit.register(os._exit, 0)",
    "at once": "import os; os._exit(0)",
    "by raising": "raise SystemExit(0)",
    "in a thread": """
        import os, threading, time
        threading.Thread(target=lambda: (time.sleep(0.3), os._exit(0)), daemon=True).start()
        """,
    "by a signal": """
        import os, signal
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        """,
    "by patches": """
        import bt_bench.cli.exits, bt_bench.base.errors, os, sys, typer
        sys.exit = typer.Exit.__init__ = lambda *_: os._exit(0)
        bt_bench.cli.exits.ExitCode.USAGE = bt_bench.base.errors.UsageError.exit_code = 0
        """,
    "by other modules": """
        import sys, types
        for name in list(sys.modules):
            if name.startswith(("bt_bench.analysis", "bt_bench.cli", "bt_bench.config")):
                sys.modules[name] = types.ModuleType(name)
        """,
    "by a hook": "import os, sys; sys.excepthook = sys.unraisablehook = lambda *_: os._exit(0)",
    "by tracing": "import os, sys; sys.setprofile(lambda *_: os._exit(0))",
    "without streams": "import os; os.close(1); os.close(2)",
    "without files": "import os; os.closerange(0, 256)",
}


def hostile(folder, code):
    """A suite with some code at the end of its file."""
    write_suite(folder)
    path = folder / "suite.py"
    path.write_text(path.read_text() + textwrap.dedent(code))
    return folder


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("code", ENDINGS.values(), ids=ENDINGS)
def test_a_suite_cannot_end_a_command(tmp_path, code):
    """Each refuses the config or the suite; the suite alone would end it with 0."""
    folder = hostile(tmp_path / "mine", code)
    outcome = run_apart("workload", "tiny", "--suite", folder, "--set", "rows=0", cwd=tmp_path)
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert "internal error" not in outcome.err
    assert "rows is 0; expected" in outcome.err or str(folder) in outcome.err


COMMANDS = {
    "workload": ["workload", "my.yaml", "-k", "nothing"],
    "dump": ["sweep", "my.yaml", "--dump-config", "-k", "nothing"],
    "list": ["list", "--suite", "mine", "--kernels", "nowhere"],
    "check": ["check", "my.yaml", "--variants", "nothing"],
    "compare": ["compare", "a.json", "b.json", "--config", "my.yaml"],
    "gate": ["gate", "--config", "my.yaml", "--base", "HEAD", "-k", "nothing"],
    "static gate": ["gate", "--config", "my.yaml", "--base", "HEAD", "--static", "-k", "nothing"],
    "against": ["gate", "--config", "my.yaml", "--against", "none.json"],
    "profile": ["profile", "my.yaml", "-k", "nothing"],
    "a typo": ["--suite", "mine", "gaet"],
}


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_no_command_ends_as_a_suite_says(tmp_path, arguments):
    """A config that names the suite is enough to load it."""
    hostile(tmp_path / "mine", ENDINGS["at its end"])
    (tmp_path / "my.yaml").write_text("suite: mine\ncases: [{name: one}]\n")
    outcome = run_apart(*arguments, cwd=tmp_path)
    assert outcome.code == 2, outcome


MEDDLES = """
import bt_bench.config.load as load
from bt_bench.config import GateSpec
from bt_bench.results import Plan

load.validate_plan = lambda *_: Plan(rounds=1)
load.validate_gate = lambda *_: load.GateSpec(fail_on=["faster"], margin_percent=100)
load._kernels = lambda *_: ["/elsewhere"]
"""


def test_a_suite_has_no_say_in_what_is_not_its_own(tmp_path):
    hostile(tmp_path / "mine", MEDDLES.replace("from bt_bench.config import GateSpec\n", ""))
    config = tmp_path / "my.yaml"
    config.write_text(
        "suite: mine\nkernels: kernels\nplan: {rounds: 7}\ngate: {margin_percent: 3}\n"
        "cases: [{name: one}]\n"
    )
    (tmp_path / "kernels").mkdir()
    outcome = run("sweep", config, "--dump-config")
    assert outcome.code == 0, outcome.err
    for line in ("  rounds: 7", "  margin_percent: 3.0", f"- {tmp_path / 'kernels'}"):
        assert line in outcome.out.splitlines()
    assert "fail_on" not in outcome.out


CASES = """
import bt_bench.config.load as load

cases_of = load._cases

def meddle(cases):
    {meddle}

def other_cases(*given):
    cases, problems = cases_of(*given)
    return meddle(cases), problems

load._cases = other_cases
"""
MEDDLING = {
    "margins": "return [(n, case.model_copy(update={'margin_percent': 9})) for n, case in cases]",
    "other margins": "return [(1, cases[0][1]), *cases[1:]]",
    "other names": "return [(0, cases[0][1].model_copy(update={'name': 'other'})), *cases[1:]]",
    "fewer cases": "return cases[:-1]",
    "no cases": "return []",
    "more cases": "return [*cases, (1, cases[1][1].model_copy(update={'name': 'b-rows=9'}))]",
    "cases from nowhere": "return [*cases, (7, cases[0][1])]",
}


@pytest.mark.parametrize("meddle", MEDDLING)
def test_cases_and_their_margins_are_those_of_the_config(tmp_path, meddle):
    hostile(tmp_path / "mine", CASES.format(meddle=MEDDLING[meddle]))
    config = tmp_path / "my.yaml"
    config.write_text(
        "suite: mine\ncases:\n  - {name: a, margin_percent: 2}\n"
        "  - {name: b, margin_percent: 50, product: {rows: [1, 2]}}\n"
        "  - {name: 'c{rows}', zip: {rows: [3, 4]}}\n"
    )
    outcome = run("sweep", config, "--dump-config")
    if meddle == "margins":
        assert outcome.code == 0, outcome.err
        shown = [line.split() for line in outcome.out.splitlines() if "margin_percent" in line]
        assert sorted(shown) == [["margin_percent:", "2.0"], *2 * [["margin_percent:", "50.0"]]]
    else:
        assert outcome.code == 2, outcome.out
        assert "the suite " in outcome.err


def test_names_and_margins_of_an_honest_suite_are_kept(tmp_path):
    write_suite(tmp_path / "mine")
    config = tmp_path / "my.yaml"
    config.write_text(
        "suite: mine\ncases:\n  - {name: a}\n  - {name: b, product: {rows: [1, 2]}}\n"
        "  - {name: 'c{rows}', margin_percent: 7, zip: {rows: [3, 4]}}\n"
    )
    for options, names in (
        ([], ["a", "b-rows=1", "b-rows=2", "c3", "c4"]),
        (["--set", "rows=5"], ["a", "b", "c5"]),
        (["--set", "rows=5,6"], ["a-rows=5", "a-rows=6", "b-rows=5", "b-rows=6", "c5", "c6"]),
    ):
        outcome = run("sweep", config, "--dump-config", *options)
        assert outcome.code == 0, outcome.err
        assert [line.split()[2] for line in outcome.out.splitlines() if "- name:" in line] == names
        assert outcome.out.count("margin_percent: 7.0") == sum(name[0] == "c" for name in names)


# Folders of somebody else


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A run of a suite and of variants that somebody has begun, which say when they run."""
    monkeypatch.chdir(tmp_path)
    ran = tmp_path / "ran"
    hostile(tmp_path / "mine", f"open({str(ran)!r}, 'w')")
    text = f"open({str(ran)!r}, 'w')\n{VARIANT}"
    write(tmp_path, {"kernels/third.py": text, "run/run.lock": ""})
    folder = tmp_path / "run"
    (folder / "config.yaml").write_text(
        "name: a\nsuite: ../mine\nvariants: [third]\noperations: [copy]\nkernels: KERNELS\n"
        "plan: {rounds: 3}\ncases: [{name: one}]\n".replace("KERNELS", str(tmp_path / "kernels"))
    )
    return folder


def test_a_resumed_run_asks_for_the_suite_that_it_names(begun, tmp_path):
    outcome = run("sweep", "--resume", begun)
    assert outcome.code == 2
    assert f"names the suite {tmp_path / 'mine'}, whose code would run; give --suite" in outcome.err
    write_suite(tmp_path / "other")
    outcome = run("sweep", "--resume", begun, "--suite", "other")
    assert outcome.code == 2
    assert "whose code would run; give --suite" in outcome.err
    assert not (tmp_path / "ran").exists()


def test_and_for_the_folders_of_variants(begun, tmp_path):
    outcome = run("sweep", "--resume", begun, "--suite", "mine", "--dump-config")
    assert outcome.code == 2
    assert f"names the folder of variants {tmp_path / 'kernels'}, whose code" in outcome.err
    named = ["--suite", "mine", "--kernels", "kernels"]
    assert run("sweep", "--resume", begun, *named, "--dump-config").code == 0
    (tmp_path / "my.yaml").write_text(
        (begun / "config.yaml").read_text().replace("../mine", "mine")
    )
    assert run("sweep", "my.yaml", "--resume", begun, "--dump-config").code == 0


def test_a_run_of_the_shipped_suite_is_not_of_another_one(begun, tmp_path):
    path = begun / "config.yaml"
    text = path.read_text().replace("suite: ../mine\n", "").replace("[copy]", "[step]")
    path.write_text(text.replace("{name: one}", "{name: one, requests: 1, tokens: 1}"))
    outcome = run("sweep", "--resume", begun, "--suite", "mine", "--kernels", "kernels")
    assert outcome.code == 2
    assert "was started, with the suite block_tables; leave --suite mine out" in outcome.err
    assert not (tmp_path / "ran").exists()


def test_to_show_a_run_runs_nothing_of_it(begun, tmp_path):
    from support.factories import make_case, make_result

    from bt_bench.results import RunFolder
    from bt_bench.results.files.writing import write_result

    partial = make_result("third", [make_case()], complete=False)
    write_result(RunFolder(begun), partial)
    for options in ([], ["--all"], ["--json"]):
        assert run("show", begun, *options).code == 0
    assert not (tmp_path / "ran").exists()
    shown = run("show", begun).out
    again = f"--suite {tmp_path / 'mine'} --kernels {tmp_path / 'kernels'}"
    assert again in " ".join(shown.split())
    assert "1 of 1" in shown or "1 case" in shown


# Code of variants, in a worker

WRONG = VARIANT.replace("self.out[: len(tokens)] = tokens", "pass")
# What a variant may do to the worker, its files and its parent's notes. It computes the right
# result itself, and would like another one to pass.
IN_WORKERS = {
    "at its end": ENDINGS["at its end"],
    "a pickle that ends its reader": """
        import gc, os
        from multiprocessing.connection import Connection
        class Ends:
            def __reduce__(self):
                return os._exit, (0,)
        for found in gc.get_objects():
            if isinstance(found, Connection):
                found.send(Ends())
        """,
}


@pytest.mark.parametrize("code", IN_WORKERS.values(), ids=IN_WORKERS)
def test_a_variant_cannot_end_a_check(tmp_path, code):
    folder = write_suite(tmp_path / "mine")
    variants = folder / "copy_kernels/variants"
    (variants / "second.py").write_text(WRONG)
    (variants / "baseline.py").write_text(f"{textwrap.dedent(code)}\n{VARIANT}")
    outcome = run_apart("check", "tiny", "--suite", folder, "--device", "cpu")
    assert outcome.code in (2, 5), outcome
    assert "FAILED  second" in outcome.out or "baseline.py" in outcome.err


# Gates

MORE = VARIANT.replace("        return", "        tokens + 1\n        return")


def gate(top, *options):
    return run_apart(
        *("gate", "--config", "my.yaml", "--base", "HEAD", "--json", *options),
        cwd=top,
        prologue=ONE_CHECK,
        timeout=600,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["at its end", "by patches", "by a hook", "by a signal"])
@pytest.mark.parametrize("file", ["suite.py", "driver.py", "copy_kernels/variants/baseline.py"])
def test_a_regression_stays_one_whatever_the_head_does(tmp_path, file, name):
    """Or the gate refuses, but it is never green."""
    top = repository(
        tmp_path / "repo",
        {"my.yaml": "suite: mine\nvariants: [baseline]\ncases: [{name: one}]\n", "README": ""},
    )
    write_suite(top / "mine")
    commit(top, "suite")
    path = top / "mine" / file
    code = textwrap.dedent(ENDINGS[name])
    (top / "mine/copy_kernels/variants/baseline.py").write_text(MORE)
    path.write_text(f"{path.read_text()}\n{code}\n")
    outcome = gate(top, "--static")
    assert outcome.code in (1, 2), outcome
    if outcome.code == 1:
        verdicts = {judgement["verdict"] for judgement in outcome.json()["judgements"]}
        assert "SLOWER" in verdicts


PAUSES = """\
import time
from bt_kernels.variants.baseline import Variant as Baseline

class Variant(Baseline):
    def append_many(self, *arguments):
        time.sleep(SECONDS)
        super().append_many(*arguments)
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", IN_WORKERS.values(), ids=IN_WORKERS)
def test_a_slow_head_is_not_green_whatever_it_does(tmp_path, code):
    files = {"my.yaml": STAGING, "mine/one.py": PAUSES.replace("SECONDS", "0")}
    top = repository(tmp_path / "repo", files)
    write(top, {"mine/one.py": PAUSES.replace("SECONDS", "0.1") + textwrap.dedent(code)})
    outcome = gate(top, "--kernels", "mine", "--device", "cpu", "--rounds", "3")
    assert outcome.code in (1, 2, 5), outcome
