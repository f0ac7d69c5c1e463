"""The real engine on this host: kills lose no case, and have none measured twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.processes import wait_for
from support.stand_in_sweep import CASES, cases_of, stand_in

from bt_bench.runs.cluster import Ledger, Plan

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        subprocess.run([sys.executable, "-c", "import parsl"], capture_output=True).returncode != 0,
        reason="needs Parsl: pip install 'bt-bench[cluster]'",
    ),
]

SHARDS, KILLS = 12, 20
DRIVER = """\
import sys
from pathlib import Path
from bt_bench.config import load_cluster
from bt_bench.runs.cluster import Ledger, run_shards
from bt_bench.runs.cluster.parsl_engine import parsl_engine
from bt_bench.runs.progress import Lines

spec = load_cluster(Path(sys.argv[1]), "cluster")
ledger = Ledger.open(Path(sys.argv[2]))
with parsl_engine(spec, ledger.folder / "engine") as engine:
    run_shards(ledger, engine, spec.attempts, Lines(lambda line: print(line, flush=True)))
"""


@pytest.fixture
def ledger(tmp_path):
    return Ledger.begin(tmp_path / "run.shards", Plan(
        shards=SHARDS, arguments=["sweep", "c"], resumed=["sweep"], versions={}
    ))  # fmt: skip


def start(tmp_path: Path, ledger: Ledger, text: str, **variables: str) -> subprocess.Popen[str]:
    """Starts the process that gives out shards."""
    (tmp_path / "cluster.yaml").write_text(text)
    place = tmp_path / "in-place"
    path = str(place) if place.exists() else stand_in(place)
    paths = os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])
    # As where nobody has activated the environment that Parsl is in.
    environment = os.environ | variables | {"PYTHONPATH": paths}
    scripts = str(Path(sys.executable).parent)
    search = [each for each in environment["PATH"].split(os.pathsep) if each != scripts]
    with (tmp_path / "said").open("a") as said:
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, tmp_path / "cluster.yaml", ledger.folder],
            env=environment | {"PATH": os.pathsep.join(search)},
            stdout=said,
            stderr=said,
            text=True,
        )


LOCAL = """\
scheduler: local
device: cpu
devices: [one, two]
silence_s: 3
attempts: 100
"""


def victims(shards: Path, mark: str) -> list[list[int]]:
    """The commands at work, each with the processes above it: keeper, worker, manager."""
    begun = shards / "begun"
    lines = begun.read_text().splitlines() if begun.exists() else []
    found = []
    for pid in {int(line.split()[0]) for line in lines}:
        chain = []
        while pid > 1 and len(chain) < 4 and is_ours(pid, mark):
            chain.append(pid)
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if len(chain) == 4:
            found.append(chain)
    return found


def is_ours(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended
        return False


def kill_one(shards: Path, mark: str, rng: random.Random, rank: int) -> bool:
    """Kills a process of a command that is at work, by its rank above the command."""
    chains = victims(shards, mark)
    try:
        if chains:
            os.kill(rng.choice(chains)[rank], signal.SIGKILL)
    except ProcessLookupError:
        return False
    return bool(chains)


def check_all_measured(ledger: Ledger) -> None:
    said = (ledger.folder.parent / "said").read_text()
    assert Ledger.open(ledger.folder).missing() == [], said
    measured = cases_of(ledger.folder)
    assert len(measured) == SHARDS
    assert all(cases == [str(case) for case in range(CASES)] for cases in measured.values())
    violations = ledger.folder / "violations"
    assert not violations.exists(), violations.read_text()


def devices(ledger: Ledger) -> set[str]:
    return {line.split()[3] for line in (ledger.folder / "begun").read_text().splitlines()}


def test_workers_have_distinct_devices_and_kills_lose_and_repeat_nothing(tmp_path, ledger):
    process = start(tmp_path, ledger, LOCAL)
    mark = str(tmp_path / "in-place")
    rng = random.Random(5)
    killed = 0
    # Commands, keepers and workers; a few of the processes that start workers; once the parent.
    ranks = [0] * 6 + [1] * 5 + [2] * 5 + [3] * 3
    rng.shuffle(ranks)
    while ranks and process.poll() is None:
        time.sleep(rng.uniform(0, 0.5))
        if kill_one(ledger.folder, mark, rng, ranks[-1]):
            ranks.pop()
            killed += 1
    wait_for(lambda: victims(ledger.folder, mark) or process.poll() is not None)
    process.kill()
    process.wait()
    process = start(tmp_path, ledger, LOCAL)
    assert process.wait(600) == 0, (tmp_path / "said").read_text()
    assert killed + 1 == KILLS
    check_all_measured(ledger)
    assert devices(ledger) == {"one", "two"}
    wait_for(lambda: not victims(ledger.folder, mark))
