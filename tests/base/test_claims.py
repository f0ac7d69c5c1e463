"""One process at a time has what it claims, and it is free again however that process ends."""

from __future__ import annotations

import errno
import os
import random
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.fake_gpus import environment_of
from support.processes import wait_for

from bt_bench.base import claims
from bt_bench.base.claims import Claim
from bt_bench.base.errors import UsageError
from bt_bench.worker import leased
from bt_bench.worker.measuring.host_time import host_turn

# Takes turns; notes the beginning and the end of each, and is told to leave a fork behind.
_CODE = """\
import os, random, sys, time
from pathlib import Path
from bt_bench.base import claims

claims.FOLDERS = (Path(sys.argv[1]),)
rng = random.Random(int(sys.argv[2]))
log = os.open(Path(sys.argv[1]) / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
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

# Shares a thing until its input ends, or says who has it.
_SHARES = """\
import sys
from pathlib import Path
from bt_bench.base import claims

claims.FOLDERS = (Path(sys.argv[1]),)
claim = claims.Claim("GPU-aaaa-1")
print("shares" if claim.take(shared=True) else claim.holder(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def claimants(tmp_path, monkeypatch):
    """Starts a process that claims; all of them, with forks, end with the test."""
    monkeypatch.setattr(claims, "FOLDERS", (tmp_path,))
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
        with pytest.raises(UsageError) as refused, leased([environment_of("aaaa-1")], print):
            pass
        with leased([environment_of("aaaa-2")], print):  # another one is free
            pass
        os.killpg(first.pid, 9)
        first.wait()
    assert (
        f"GPU-aaaa-1 is in use by process {first.pid} (bt-bench {tmp_path} 0 1 stays, since 2"
        in str(refused.value)
    )
    assert "wait for it, or choose another GPU by --device or --gpus" in str(refused.value)
    with leased([environment_of("aaaa-1")], print):
        assert (tmp_path / "bt-bench.GPU-aaaa-1.claim").stat().st_mode & 0o777 == 0o666


@pytest.fixture
def sharer(tmp_path, monkeypatch):
    """Function that starts a process that shares a GPU until its input ends."""
    tmp_path.chmod(0o777)
    monkeypatch.setattr(claims, "FOLDERS", (tmp_path,))
    with ExitStack() as at_end:

        def start():
            command = [sys.executable, "-c", _SHARES, tmp_path]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            process = at_end.enter_context(subprocess.Popen(command, text=True, **pipes))
            return process, process.stdout.readline().strip()

        yield start


def test_what_times_nothing_shares_a_gpu_and_what_times_it_comes_next(sharer):
    """Who has left is not named, and nobody else comes while one waits to have it alone."""
    (first, told), (second, also_told) = sharer(), sharer()
    assert (told, also_told) == ("shares", "shares")
    both = rf"{first.pid} \(bt-bench .*, since 2.*\) and {second.pid} \(bt-bench .*"
    assert re.fullmatch(both, Claim("GPU-aaaa-1").holder())
    first.kill()
    first.wait()
    heard = []

    def hear(text):
        heard.append(text)
        assert sharer()[1].startswith(f"{os.getpid()} (bt-bench")
        second.stdin.close()

    with leased([environment_of("aaaa-1")], hear):
        assert sharer()[1].startswith(f"{os.getpid()} (bt-bench")
    (text,) = heard
    assert text.startswith(
        "waiting for GPU-aaaa-1, up to 5 minutes: it is shared by process "
        f"{second.pid} (bt-bench {Path(second.args[-1])}, since "
    )
    assert str(first.pid) not in text


def test_one_that_waits_too_long_for_those_that_share_is_refused_by_their_names(
    sharer, monkeypatch
):
    monkeypatch.setattr("bt_bench.worker.machine.leases._PATIENCE_S", 0.0)
    environments = [environment_of("aaaa-1")]
    first, _ = sharer()
    with (
        pytest.raises(UsageError, match=f"GPU-aaaa-1 is in use by process {first.pid} .bt-bench"),
        leased(environments, print),
    ):
        pass
    with leased(environments, print, shared=True):  # nobody waits any more
        assert sharer()[1] == "shares"
    with (
        pytest.raises(UsageError, match="--gpus names GPU-aaaa-1 twice"),
        leased(2 * environments, print),
    ):
        pass
    on_cpu = environments[0].model_copy(update={"device": "cpu"})
    with leased([on_cpu, on_cpu], print):  # of a GPU that is there, and not used
        assert is_free_for_others("GPU-aaaa-1", shared=True)


def test_claims_are_where_all_users_can_make_files(tmp_path, monkeypatch):
    names = ("missing", "read_only", "private", "common")
    folders = [tmp_path / name for name in names]
    for folder, mode in zip(folders[1:], (0o777, 0o700, 0o1777), strict=True):
        folder.mkdir()
        folder.chmod(mode)
    is_allowed = os.access
    monkeypatch.setattr(os, "access", lambda p, m: p != folders[1] and is_allowed(p, m))
    monkeypatch.setattr(claims, "FOLDERS", folders)
    assert claims.claims_folder() == (folders[3], True)
    heard = []
    with leased([environment_of("aaaa-1")], heard.append):
        assert (folders[3] / "bt-bench.GPU-aaaa-1.claim").exists()
    assert heard == []
    monkeypatch.setattr(claims, "FOLDERS", folders[:3])
    with leased([environment_of("aaaa-1")], heard.append):
        assert (folders[2] / "bt-bench.GPU-aaaa-1.claim").exists()
    assert heard[0].startswith(
        f"warning: leases of GPUs are in {folders[2]}, where other users can"
    )
    monkeypatch.setattr(claims, "FOLDERS", folders[:2])
    with (
        pytest.raises(
            UsageError, match=f"this user can make none in {folders[0]} and {folders[1]}"
        ),
        leased([environment_of("aaaa-1")], print),
    ):
        pass


def test_a_turn_is_waited_for_and_told(claimants, tmp_path, monkeypatch):
    monkeypatch.setattr("bt_bench.worker.measuring.host_time.THING", "thing")
    first = claimants(1, "stays")
    wait_for(lambda: lines(tmp_path))
    monkeypatch.setattr("bt_bench.worker.measuring.host_time._LONG_SECONDS", 0.1)
    heard = []

    def hear(progress):
        heard.append(progress)
        if progress.is_news:  # a log has it only if the wait is long
            first.kill()

    with host_turn(hear):
        assert not Claim("thing")._number
    assert heard[0].what.startswith(f"waiting to time the host, as process {first.pid} (bt-bench ")
    assert not heard[0].is_news


_TURNS = """\
import sys, time
from pathlib import Path
from bt_bench.base import claims
from bt_bench.worker.measuring.host_time import host_turn

claims.FOLDERS = (Path(sys.argv[1]),)
for _ in range(100):
    with host_turn(lambda _: None), open(f"{sys.argv[1]}/log", "a") as log:
        print("a turn", file=log, flush=True)
        time.sleep(0.05)
"""


def test_who_waits_for_a_turn_comes_before_who_has_just_had_one(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "FOLDERS", (tmp_path,))
    with subprocess.Popen([sys.executable, "-c", _TURNS, tmp_path]) as greedy:
        wait_for(lambda: lines(tmp_path))
        with host_turn(lambda _: None):
            assert len(lines(tmp_path)) < 40  # one or two, but where this process has to wait
        greedy.kill()


def is_free_for_others(thing, **options):
    """Ask a fork, which has no claim of this process."""
    child = os.fork()
    if not child:
        os._exit(Claim(thing).take(**options))
    return bool(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def test_a_second_claim_of_one_process_is_refused_and_leaves_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "FOLDERS", (tmp_path,))
    first, second = Claim("thing"), Claim("thing")
    assert first.take()
    assert not second.take()
    assert second.holder().startswith(f"{os.getpid()} (bt-bench")
    second.give_back()
    assert not is_free_for_others("thing")
    first.give_back()
    assert is_free_for_others("thing")
    assert second.take()
    second.give_back()


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (Path.symlink_to, "it is a symbolic link"),
        (Path.hardlink_to, "it is another name of some file"),
        (lambda path, _: os.mkfifo(path), "it is a FIFO"),
        (lambda path, _: path.mkdir(), "it is a folder"),
    ],
)
def test_what_somebody_has_put_in_its_place_is_left_alone(tmp_path, monkeypatch, plant, said):
    monkeypatch.setattr(claims, "FOLDERS", (tmp_path,))
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    plant(tmp_path / "bt-bench.thing.claim", victim)
    with pytest.raises(UsageError, match=f"thing.claim: cannot be locked: {said}.*remove or chmod"):
        Claim("thing").take()
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("precious", 0o600)


def test_a_file_that_another_was_faster_to_make_keeps_its_mode(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "FOLDERS", (tmp_path,))
    path, opened = tmp_path / "bt-bench.thing.claim", claims.open_own

    def slow(*arguments):
        if not path.exists():
            path.touch(0o600)
            raise FileNotFoundError
        return opened(*arguments)

    monkeypatch.setattr(claims, "open_own", slow)
    claim = Claim("thing")
    assert claim.take()
    claim.give_back()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_folder_without_room_has_claims_without_names(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "FOLDERS", (tmp_path,))

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    claim = Claim("thing")
    assert claim.take()
    child = os.fork()
    if not child:
        os._exit(claim.holder() == "of unknown id")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_name_of_a_holder_is_text_whoever_wrote_it(claimants, tmp_path):
    claimants(1, "stays")
    wait_for(lambda: lines(tmp_path))
    (tmp_path / "bt-bench.thing.claim").write_bytes(b"1 (\x1b[2Jx\n)\xff")
    assert Claim("thing").holder() == "1 ([2Jx)\ufffd"
