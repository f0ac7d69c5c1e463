"""Nothing that a command has started outlives it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from support.processes import running_with, runs, wait_for

from bt_bench.base.processes.lifetime import bearers_of, end_all, marked, run_kept

# As daemons start: forked twice, in a session of its own, and holding the output open.
DETACHES = "setsid sh -c 'sleep {} &'; echo started; "


def run_shell(script, **options):
    return run_kept(["/bin/sh", "-c", script], env=dict(os.environ), **options)


@pytest.mark.parametrize(("then", "code"), [("exit 3", 3), ("kill -9 $$", -9)])
def test_what_a_command_leaves_ends_with_it(then, code):
    seconds = f"600.{os.getpid()}3"
    done = run_shell(DETACHES.format(seconds) + then)
    assert (done.returncode, done.stdout) == (code, "started\n")
    assert running_with(seconds) == []


def test_so_it_does_when_time_is_up():
    seconds = f"600.{os.getpid()}4"
    with pytest.raises(subprocess.TimeoutExpired):
        run_shell(DETACHES.format(seconds) + f"sleep {seconds}", seconds=1.0)
    wait_for(lambda: running_with(seconds) == [])


def test_so_it_does_when_we_are_killed():
    seconds = f"600.{os.getpid()}5"
    script = DETACHES.format(seconds) + f"sleep {seconds}; true"
    code = (
        "import os\nfrom bt_bench.base.processes.lifetime import run_kept\n"
        f"run_kept(['/bin/sh', '-c', {script!r}], env=os.environ)"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    wait_for(lambda: len(running_with(f"sleep\0{seconds}")) == 2)
    process.kill()
    process.wait()
    wait_for(lambda: running_with(seconds) == [])


def test_a_mark_is_borne_by_what_is_started_in_its_block():
    with marked() as mark:
        process = subprocess.Popen(["sleep", "600"])
    other = subprocess.Popen(["sleep", "600"])
    try:
        wait_for(lambda: bearers_of(mark) == [process.pid])
        end_all(lambda: bearers_of(mark))
        assert not runs(process.pid)
        assert runs(other.pid)
    finally:
        for each in (process, other):
            each.kill()
            each.wait()


def test_what_cannot_be_ended_is_not_waited_for_forever(monkeypatch):
    monkeypatch.setattr("bt_bench.base.processes.lifetime._SECONDS_TO_END", 0.05)
    began = time.monotonic()
    end_all(lambda: [2**22 + 1])  # above all numbers that Linux gives
    assert time.monotonic() - began >= 0.05
