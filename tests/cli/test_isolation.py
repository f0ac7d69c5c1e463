"""A variant that takes its process down fails its cases, and costs the others nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from support.commands import ONE_CHECK, TINY, run, run_apart, start
from support.faulty import write_faulty
from support.forked import workers_forked
from support.processes import wait_for

from bt_bench.results.files.reading import read_run

# Faulty in the case of two groups alone, and only when it is rewound a third time: a check does so
# twice, so it passes that and fails while it is measured.
LATE = """\
import os
import signal
import time
from pathlib import Path

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    def restore(self, state):
        self.restored = getattr(self, "restored", 0) + 1
        if self.restored > 2 and len(self.block_tables) == 2:
            {fault}
        super().restore(state)
"""
WAITS_TO_BE_KILLED = "Path({path!r}).write_text(str(os.getpid())); time.sleep(60)"
WAITS_ONCE = """\
path = Path({path!r})
            if not path.exists():
                path.write_text(str(os.getpid()))
                time.sleep(60)"""
AT_ONCE = {
    "kills_itself": ("crashed", "SIGKILL"),
    "segfaults": ("crashed", "SIGSEGV"),
    "memory_error": ("out_of_memory", "no room for the tables"),
    "sleeps": ("hung", "within 3 s (plan.hang_seconds)"),
}
LATE_FAULTS = {
    "late_crash": ("os._exit(7)", "crashed", "exit code 7"),
    "late_hang": ("time.sleep(60)", "hung", "within 3 s"),
}


def children(pid):
    """Processes that a process has started and that are alive, by their command lines."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text()
            command = (path / "cmdline").read_text(errors="replace")
        except OSError:
            continue
        state, parent = stat.rpartition(")")[2].split()[:2]
        if int(parent) == pid and state != "Z":
            found[int(path.name)] = command
    return found


def text_of(path):
    return path.read_text() if path.exists() else ""


def kill_all_in(pid_file, process):
    """Kills whoever writes its number into a file, as long as a process is there."""
    killed = {""}
    while process.poll() is None:
        if (pid := text_of(pid_file)) not in killed:
            os.kill(int(pid), signal.SIGKILL)
            killed.add(pid)
        time.sleep(0.05)


def sweep_with(faults, folder):
    """Exit code, stderr and results of a sweep of variants with these faults, and sound ones.

    The worker of the variant `victim` is killed from outside.
    """
    kernels, pid_file = folder / "kernels", folder / "pid"
    kernels.mkdir()
    for name in faults:
        if name in AT_ONCE:
            write_faulty(kernels, name)
        elif name in LATE_FAULTS:
            (kernels / f"{name}.py").write_text(LATE.format(fault=LATE_FAULTS[name][0]))
        else:
            fault = WAITS_TO_BE_KILLED.format(path=str(pid_file))
            (kernels / f"{name}.py").write_text(LATE.format(fault=fault))
    (folder / "tiny.yaml").write_text(TINY)
    process = start(
        *("sweep", folder / "tiny.yaml", "--out", folder / "run", "--kernels", kernels),
        *("--variants", ",".join(["baseline", *faults, "fused"]), "--operations", "step"),
        *("--set", "plan.rounds=4", "--set", "plan.hang_seconds=3"),
        prologue=ONE_CHECK,
    )
    killing = threading.Thread(target=kill_all_in, args=(pid_file, process))
    killing.start()
    _out, err = process.communicate(timeout=900)
    killing.join()
    results = {result.variant.name: result for result in read_run(folder / "run")}
    return process.returncode, err, results


# A worker for each, which imports torch; tests/worker/process/test_supervisor.py scripts them.
@pytest.mark.slow
def test_a_sweep_outlives_every_fault(tmp_path):
    """Each costs a worker, and the first crash of each of two tasks one more, to confirm it."""
    faults = [*AT_ONCE, *LATE_FAULTS, "victim"]
    code, err, results = sweep_with(faults, tmp_path)
    assert code == 5, err
    assert all(result.complete and len(result.cases) == 2 for result in results.values())
    assert err.count("a fresh worker takes over") == 9
    assert "Traceback" not in err
    late = {name: expected for name, (_, *expected) in LATE_FAULTS.items()}
    late["victim"] = ("crashed", "SIGKILL")
    for name in ("baseline", "fused"):
        assert_intact(results[name], set(late) & set(faults))
    for name in faults:
        if name in AT_ONCE:
            for case in results[name].cases:
                assert_failed(case, *AT_ONCE[name], where="conformance:corners")
        else:
            one, two = results[name].cases
            assert (one.status, one.reason) == ("ok", None)
            assert_failed(two, *late[name], where="while measured: ")


@pytest.mark.slow
def test_a_worker_killed_once_from_outside_costs_nobody_a_case(tmp_path):
    kernels, pid_file = tmp_path / "kernels", tmp_path / "pid"
    kernels.mkdir()
    fault = WAITS_ONCE.format(path=str(pid_file))
    (kernels / "victim.py").write_text(LATE.format(fault=fault))
    (tmp_path / "tiny.yaml").write_text(TINY)
    process = start(
        *("sweep", tmp_path / "tiny.yaml", "--out", tmp_path / "run", "--kernels", kernels),
        *("--variants", "baseline,victim", "--operations", "step"),
        prologue=ONE_CHECK,
    )
    wait_for(lambda: text_of(pid_file))
    os.kill(int(text_of(pid_file)), signal.SIGKILL)
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    assert err.count("a fresh worker takes over") == 1
    baseline, victim = read_run(tmp_path / "run")
    for result in (baseline, victim):
        assert [(case.status, case.reason) for case in result.cases] == [("ok", None)] * 2
    # It need not have come from outside: whoever reads the result has to know.
    (crash,) = victim.crashes
    assert (crash.during, crash.known) == ("step/two", True)
    assert crash.reason.message.startswith("while measured: the worker was ended by SIGKILL")
    assert baseline.crashes == []
    outcome = run("compare", tmp_path / "run", "--fail-on", "none")
    assert "victim: step/two: while measured: the worker was ended by SIGKILL" in outcome.out
    assert "Warning: 1 crash that did not happen again" in out


def assert_intact(result, late):
    """Everything was measured, in rounds without the arms that failed the case."""
    assert [case.case for case in result.cases] == ["one", "two"]
    for case in result.cases:
        assert (case.status, case.reason) == ("ok", None)
        assert case.launches is not None
        beside = set() if case.case == "two" else late
        assert set(case.rounds.arms) - {"(control)"} == {"baseline", "fused"} | beside
        assert case.measurements
        assert all(len(measurement.samples) == 4 for measurement in case.measurements)


def assert_failed(case, code, message, where):
    assert (case.status, case.reason.code) == ("failed", code)
    assert message in case.reason.message
    assert where in case.reason.message
    assert not case.measurements


def test_killed_parent_leaves_no_worker_and_loses_nothing(tmp_path):
    config = tmp_path / "tiny.yaml"
    config.write_text(TINY)
    out = tmp_path / "run"
    process = start(
        *("sweep", config, "--out", out, "--operations", "step", "--set", "plan.rounds=30"),
        *("--set", "plan.precision_percent=0"),
        prologue=ONE_CHECK,
    )
    for line in process.stderr:
        if line.startswith("[1/2]"):
            break
    (worker,) = [p for p, command in children(process.pid).items() if "spawn_main" in command]
    process.kill()
    process.wait()
    wait_for(lambda: not Path(f"/proc/{worker}").exists())
    killed = read_run(out)
    assert all(not result.complete and len(result.cases) == 1 for result in killed)
    assert (out / "baseline.cases.jsonl").exists()

    # What a kill in the middle of a line leaves.
    with (out / "baseline.cases.jsonl").open("a") as journal:
        journal.write('{"key":"step/o')
    assert [len(r.cases) for r in read_run(out)] == [len(r.cases) for r in killed]

    assert run("sweep", "--resume", out).code == 0
    resumed = read_run(out)
    assert all(result.complete and len(result.cases) == 2 for result in resumed)
    after = {case.key: case.measurements for case in resumed[0].cases}
    assert {case.key: case.measurements for case in killed[0].cases}.items() <= after.items()
    assert sorted(path.name for path in out.iterdir()) == [
        "baseline.json",
        "comparison.md",
        "config.yaml",
        "fused.json",
        "report.html",
    ]


def test_a_variant_that_runs_out_of_memory_on_import_is_named(tmp_path):
    (tmp_path / "large.py").write_text("TABLE = 1\nraise MemoryError('no room for the table')\n")
    words = ("check", "quick", "--kernels", tmp_path, "--variants", "large")
    outcome = run_apart(*words, prologue=workers_forked(), forked=True)
    assert outcome.code == 2
    assert "large.py: the variant file does not import: MemoryError: no room" in outcome.err
    assert "(large.py:2: " in outcome.err


CLOSES = """\
import os
from bt_kernels.variants.baseline import Variant as Baseline

def close_all():
    os.closerange(0, 4096)

class Variant(Baseline):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        {later}

{now}
"""


@pytest.mark.parametrize(
    ("fill", "code", "message"),
    [
        (
            {"now": "close_all()", "later": "pass"},
            2,
            "closes.py: the variant file does not import: while imported: the worker ended with",
        ),
        (  # seven workers, one after the other
            {"now": "", "later": "close_all()"},
            5,
            "while checked: the worker ended with exit code",
        ),
    ],
    ids=["on import", "when made"],
)
def test_a_variant_that_closes_all_file_descriptors_is_named(fill, code, message, tmp_path):
    (tmp_path / "closes.py").write_text(CLOSES.format(**fill))
    (tmp_path / "tiny.yaml").write_text(TINY)
    arguments = ["check", "tiny.yaml", "-k", "one", "--kernels", tmp_path, "--variants", "closes"]
    arguments += ["--operations", "step", "--explore", "0"]
    prologue = ONE_CHECK + workers_forked()
    outcome = run_apart(*arguments, cwd=tmp_path, prologue=prologue, forked=True)
    assert outcome.code == code
    assert message in " ".join((outcome.out + outcome.err).split())
    assert "internal error" not in outcome.err
