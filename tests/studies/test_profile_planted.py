"""The defects that `bt-bench profile` has to name: they can be planted, and told when named."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import time
from pathlib import Path

import profile_planted
import pytest
from common import plant
from gate_demo import slow_host, slow_kernel
from profile_planted import DEFECTS, KERNEL, VARIANT, ProfileError, first_named
from support.timelines import FUSED, SEPARATE, Launch, a_timeline, host_profile, with_host

from bt_bench.report.profile import timeline_changes_json

DEFECT = {defect.name: defect for defect in DEFECTS}
COPY = next(call for call in SEPARATE if isinstance(call, Launch) and call.kind == "copy")


def figure(what, before="3", after="4", where=KERNEL, more=True):
    return {"where": where, "what": what, "before": before, "after": after, "more": more}


def right(name, changes):
    return [right for _, right in first_named(DEFECT[name], changes)]


def step_changes(script, function="step", us=5.0):
    """What changes from the fused step to another one, as `--json` has it."""
    before = with_host(a_timeline({VARIANT: FUSED}), host_profile("step", 5.0))
    after = with_host(a_timeline({VARIANT: script}), host_profile(function, us))
    return json.loads(json.dumps(timeline_changes_json(before, after, "before")))


@pytest.mark.parametrize(
    "edits", [*(defect.edits for defect in DEFECTS), slow_kernel(140), slow_host(8)]
)
def test_defects_can_be_planted(edits, tmp_path):
    package = plant(tmp_path) / "bt_kernels"
    shipped = {path: path.read_text() for path in package.rglob("*.py")}
    plant(tmp_path, edits)
    changed = {path.relative_to(package).as_posix() for path in shipped if differs(path, shipped)}
    assert changed == {file for file, _, _ in edits}
    plant(tmp_path)
    assert not any(differs(path, shipped) for path in shipped)


def differs(path, texts):
    text = path.read_text()
    ast.parse(text)
    return text != texts[path]


def test_an_edit_that_does_not_fit_is_not_planted(tmp_path):
    with pytest.raises(SystemExit, match="has 0 times: 'no such text'"):
        plant(tmp_path, [("fusions.py", "no such text", "")])


def test_the_host_sleeps_for_five_microseconds(tmp_path):
    names = {"time": time}
    exec(profile_planted.SLEEP, names)
    start_ns = time.perf_counter_ns()
    names["_sleep_5_us"]()
    assert time.perf_counter_ns() - start_ns >= 5_000


def test_figures_of_kernels():
    spills, loads = figure("bytes that a thread spills"), figure("dependent loads")
    waits, registers = figure("waits for loads"), figure("registers of a thread")
    assert right("spill", [spills, loads]) == [True]
    assert right("dependent-load", [loads]) == right("dependent-load", [waits]) == [True]
    for name, changes in [
        ("spill", []),
        ("spill", [registers, spills]),
        ("spill", [figure("bytes that a thread spills", more=False)]),
        ("dependent-load", [figure("dependent loads", where="gather_kernel")]),
        ("dependent-load", [spills, loads]),
    ]:
        assert right(name, changes) == [False]


def test_a_new_copy():
    slow = Launch(operation="fused_kernel", code_us=40.0)
    table = Launch(name="cudaMemcpyAsync", operation="copy device to device", kind="copy",
                   runs_us=30.0, moved_bytes=1 << 25)  # fmt: skip
    assert first_named(DEFECT["copy"], step_changes((table, *FUSED))) == [
        ("copy device to device: new, +30.00 µs", True)
    ]
    # Code that became slower, as on a busy machine, does not hide it; another kernel would.
    assert right("copy", step_changes((COPY, slow))) == [True]
    other = Launch(operation="other_kernel", runs_us=50.0)
    assert right("copy", step_changes((COPY, other, *FUSED))) == [False]
    assert right("copy", step_changes(FUSED)) == [False]
    assert right("copy", {}) == [False]
    # As torch's profiler calls it.
    row = {"lane": "device", "what": "operation", "next_to": None, "difference_us": 20.0}
    row |= {"kind": "new", "name": "Memcpy DtoD (Device -> Device)"}
    assert right("copy", {VARIANT: {"rows": [row], "host_calls": None}}) == [True]
    assert right("copy", {VARIANT: {"rows": [row | {"kind": "gone"}]}}) == [False]


def test_a_host_that_sleeps():
    slow = (Launch(operation="fused_kernel", code_us=10.0),)
    changes = step_changes(slow, "_sleep_5_us", 6.0)
    assert first_named(DEFECT["sleep"], changes) == [
        ("host code before fused_kernel: longer, +5.00 µs", True),
        ("_sleep_5_us (a.py:7): new, +6.00 µs", True),
    ]
    assert right("sleep", step_changes(slow, us=9.0)) == [True, False]
    launch = step_changes((Launch(operation="fused_kernel", us=9.0),), "_sleep_5_us", 9.0)
    assert right("sleep", launch) == [False, True]
    assert right("sleep", step_changes(FUSED, "_sleep_5_us", 6.0)) == [False, True]
    assert right("sleep", {}) == [False, False]


# The whole, with profiles that are made up


@pytest.fixture
def answers(monkeypatch, tmp_path):
    """What profiles of defects say has changed; an exception is raised. Gives the asked ones."""
    named = {
        "spill": [figure("bytes that a thread spills")],
        "dependent-load": [figure("dependent loads")],
    }
    asked = []

    def profile(scratch, edits, tool, out, *options):
        asked.append((tool, out.name, options))
        out.mkdir()
        answer = named.get(out.name)
        if isinstance(answer, Exception):
            raise answer
        return {"changes": answer}

    monkeypatch.setattr(profile_planted, "profile", profile)
    monkeypatch.setattr(profile_planted, "has_gpu", lambda: False)
    monkeypatch.setattr(sys, "argv", ["profile_planted.py", "--out", str(tmp_path / "out")])
    named["asked"] = asked
    return named


def test_all_that_needs_no_gpu_is_named(answers, tmp_path, capsys):
    assert profile_planted.main() == 0
    out, err = capsys.readouterr()
    assert "2 of 4 defects were named; 2 were skipped." in out
    assert "SKIPPED: copy: --tool timeline needs a GPU, and there is none here" in err
    assert "SKIPPED: sleep" in err
    folder = tmp_path / "out"
    against = ("--against", str(folder / "shipped-static"))
    assert answers["asked"] == [
        ("static", "shipped-static", ()),
        ("static", "spill", against),
        ("static", "dependent-load", against),
    ]
    found = json.loads((folder / "planted.json").read_text())
    assert [(each["name"], each["right"]) for each in found] == [
        ("spill", True),
        ("dependent-load", True),
        ("copy", None),
        ("sleep", None),
    ]
    page = (folder / "planted.md").read_text()
    assert f"{KERNEL}: bytes that a thread spills, 3 to 4" in page.replace("\\_", "_")


@pytest.mark.parametrize("answer", [[], ProfileError("spill: ended with 5\nbecause")])
def test_one_that_is_not_named(answers, answer, capsys):
    answers["spill"] = answer
    assert profile_planted.main() == 1
    out, err = capsys.readouterr()
    assert "1 of 4 defects were named" in out
    assert "NO" in out
    assert ("because" in err) == bool(answer)
    assert "dependent loads" in out


def test_a_folder_is_not_overwritten(answers, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(SystemExit, match="exists, and is not overwritten"):
        profile_planted.main()


def test_why_a_profile_fails_is_said(tmp_path, monkeypatch):
    def failing(*command, **options):
        return subprocess.CompletedProcess(command, 5, '{"reason": "row 3 differs"}', "loading")

    monkeypatch.setattr(subprocess, "run", failing)
    with pytest.raises(ProfileError, match=r"(?s)ended with 5\nloading\n.*row 3 differs"):
        profile_planted.profile(tmp_path, (), "static", tmp_path / "x")


@pytest.mark.slow
def test_real_profiles_name_what_needs_no_gpu(tmp_path):
    script = Path(profile_planted.__file__)
    done = subprocess.run(
        [sys.executable, script, "--only", "spill", "dependent-load", "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out" / "planted.json").read_text())
    assert [(each["name"], each["right"]) for each in found] == [
        ("spill", True),
        ("dependent-load", True),
    ]
    census = tmp_path / "out" / "spill" / "census.json"
    assert census.is_file()
