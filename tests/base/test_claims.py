"""One process at a time has what it claims, and it is free again however that process ends."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.fake_gpus import environment_of
from support.processes import wait_for

from bt_bench.base import claims
from bt_bench.base.claims import Claim
from bt_bench.base.errors import UsageError
from bt_bench.runs.leases import leased
from bt_bench.worker.measuring.host_time import host_turn

# Takes turns; notes the beginning and the end of each, and is told to leave a fork behind.
_CODE = """\
import os, random, sys, time
from pathlib import Path
from bt_bench.base import claims

claims.FOLDER = Path(sys.argv[1])
rng = random.Random(int(sys.argv[2]))
log = os.open(claims.FOLDER / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
claim = claims.Claim("thing")
for turn in range(int(sys.argv[3])):
    while not claim.take():
        time.sleep(rng.uniform(0, 0.004))
    os.write(log, f"{os.getpid()} begins\\n".encode())
    if sys.argv[4:] and os.fork() == 0:
        time.sleep(600)
    time.sleep(60 if sys.argv[4:] else rng.uniform(0, 0.004))
    os.write(log, f"{os.getpid()} ends\\n".encode())
    claim.give_back()
    time.sleep(rng.uniform(0, 0.004))
"""


@pytest.fixture
def claimants(tmp_path, monkeypatch):
    """Starts a process that claims; all of them, with forks, end with the test."""
    monkeypatch.setattr(claims, "FOLDER", tmp_path)
    started = []

    def start(turns, *words):
        command = [sys.executable, "-c", _CODE, tmp_path, str(len(started)), str(turns), *words]
        process = subprocess.Popen(command, process_group=0)
        started.append(process)
        return process

    yield start
    for process in started:
        try:
            os.killpg(process.pid, 9)
        except ProcessLookupError:
            continue
        finally:
            process.wait()


def lines(tmp_path: Path) -> list[str]:
    log = tmp_path / "log"
    return log.read_text().splitlines() if log.exists() else []


def holding(processes, tmp_path):
    noted = lines(tmp_path)
    return [each for each in processes if each.poll() is None and f"{each.pid} begins" in noted]


def test_no_two_have_it_and_a_killed_one_gives_it_back(claimants, tmp_path):
    """A fork of the killed one lives on, and does not have it."""
    rng = random.Random(3)
    killed = [claimants(9, "forks") for _ in range(2)]
    others = [claimants(15) for _ in range(2)]
    for _ in killed:
        wait_for(lambda: holding(killed, tmp_path))
        time.sleep(rng.uniform(0, 0.02))
        (holder,) = holding(killed, tmp_path)
        holder.kill()
        holder.wait()
    assert [process.wait(60) for process in others] == [0, 0]
    turns = lines(tmp_path)
    dead = {f"{process.pid} begins" for process in killed}
    whole = [line for line in turns if line not in dead]
    assert len(whole) == 2 * 2 * 15
    for begin, end in zip(whole[::2], whole[1::2], strict=True):
        assert (begin, end) == (f"{begin.split()[0]} begins", f"{begin.split()[0]} ends")
    for line in dead:  # what was killed never was in the midst of another's turn
        place = turns.index(line)
        before = [each for each in turns[:place] if each not in dead]
        assert not before or before[-1].endswith(" ends")


def test_a_second_run_on_a_gpu_is_refused_by_the_name_of_the_first(claimants, tmp_path):
    claim_of_it = _CODE.replace('"thing"', '"GPU-aaaa-1"')
    command = [sys.executable, "-c", claim_of_it, tmp_path, "0", "1", "stays"]
    with subprocess.Popen(command, process_group=0) as first:
        wait_for(lambda: lines(tmp_path))
        with pytest.raises(UsageError) as refused, leased([environment_of("aaaa-1")]):
            pass
        with leased([environment_of("aaaa-2")]):  # another one is free
            pass
        os.killpg(first.pid, 9)
        first.wait()
    assert (
        f"GPU-aaaa-1 is being timed by process {first.pid} (bt-bench {tmp_path} 0 1 stays)"
        in str(refused.value)
    )
    assert "wait for it, or choose another GPU by --device or --gpus" in str(refused.value)
    with leased([environment_of("aaaa-1")]):
        assert (tmp_path / "bt-bench.GPU-aaaa-1.claim").stat().st_mode & 0o777 == 0o666


def test_a_turn_is_waited_for_and_told(claimants, tmp_path, monkeypatch):
    monkeypatch.setattr("bt_bench.worker.measuring.host_time.THING", "thing")
    first = claimants(1, "stays")
    wait_for(lambda: lines(tmp_path))
    heard = []

    def hear(progress):
        heard.append(progress.what)
        first.kill()

    with host_turn(hear):
        assert not Claim("thing")._number
    assert heard[0].startswith(f"waiting to time the host, as process {first.pid} (bt-bench ")
