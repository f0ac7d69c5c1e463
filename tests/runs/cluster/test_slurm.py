"""A real Slurm of one node: jobs have a GPU each, and what is killed is measured all the same."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from support.processes import wait_for
from support.slurm import Slurm, missing_programs, slurm
from support.stand_in_sweep import stand_in

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(missing_programs()), reason="needs Debian's packages slurm-wlm and munge"
    ),
]


@pytest.fixture(scope="module")
def running():
    with slurm(gpus=2) as found:
        yield found


NOTE = 'echo "$SLURM_RESTART_COUNT:$CUDA_VISIBLE_DEVICES" >> ran.$SLURM_JOB_ID; '


def notes(running: Slurm, job: int) -> list[str]:
    path = running.folder / f"ran.{job}"
    return path.read_text().split() if path.exists() else []


def test_two_jobs_have_distinct_gpus_and_a_third_waits(running):
    jobs = [running.submit(f"{NOTE} sleep 300", "--gpus=1") for _ in range(3)]
    wait_for(lambda: notes(running, jobs[0]) and notes(running, jobs[1]))
    assert {notes(running, job)[0] for job in jobs[:2]} == {":0", ":1"}
    assert running.job(jobs[2])["JobState"] == "PENDING"
    running.run("scancel", str(jobs[1]))
    wait_for(lambda: notes(running, jobs[2]))
    assert notes(running, jobs[2]) == [":1"]
    assert running.job(jobs[1])["JobState"] == "CANCELLED"
    for job in jobs:
        running.run("scancel", str(job))
    wait_for(lambda: not running.jobs())


def test_a_job_that_was_killed_goes_on_with_its_shard_when_it_is_requeued(running, tmp_path):
    """The contract alone, without an engine: Slurm's own requeue continues the run."""
    path = stand_in(tmp_path / "in-place")
    shards = tmp_path / "run.shards"
    shards.mkdir()
    folder = shards / "1-of-1"
    script = (
        f"export PYTHONPATH={path}; if [ -f {folder}/config.yaml ]; then how=--resume; else "
        f"how=--out; fi; python -m bt_bench sweep $how {folder}"
    )
    job = running.submit(script, "--gpus=1", "--requeue")
    cases = folder / "cases"
    wait_for(cases.exists)
    done = cases.read_text().splitlines()
    for pid in running.processes(job):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: running.job(job)["JobState"] == "FAILED")
    time.sleep(2)  # a node starts no job again within the second in which that job was ended
    running.run("scontrol", "requeue", str(job))
    running.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # not after two minutes
    wait_for(lambda: running.job(job)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"))
    fields = running.job(job)
    said = (running.folder / f"slurm-{job}.out").read_text()
    told = f"{fields}\n{said}\n{(running.folder / 'slurmd.log').read_text()}"
    assert (fields["JobState"], fields["Restarts"]) == ("COMPLETED", "1"), told
    lines = cases.read_text().splitlines()
    assert lines[: len(done)] == done
    assert [line.split()[0] for line in lines] == list("012345")
    assert not (shards / "violations").exists()


def test_the_engine_survives_a_cancelled_job(running, tmp_path):
    pytest.importorskip("parsl", reason="needs Parsl: pip install 'bt-bench[cluster]'")
    from runs.cluster.test_parsl import check_all_measured, devices, start

    from bt_bench.runs.cluster import Ledger, Plan

    plan = Plan(shards=12, arguments=["sweep", "c"], resumed=["sweep"], versions={})
    ledger = Ledger.begin(tmp_path / "run.shards", plan)
    text = (
        "scheduler: slurm\nworkers: 2\ncores: 1\ndevice: cpu\nsilence_s: 5\nattempts: 20\n"
        f"address: 127.0.0.1\nsetup: cd {tmp_path}\n"
    )
    process = start(tmp_path, ledger, text, **running.environment)
    wait_for(lambda: len(running.jobs()) == 2 and (ledger.folder / "begun").exists())
    running.run("scancel", str(running.jobs()[0]))
    assert process.wait(600) == 0, (tmp_path / "said").read_text()
    check_all_measured(ledger)
    assert devices(ledger) <= {"0", "1"}
    wait_for(lambda: not running.jobs())


def test_nothing_of_it_is_left():
    with slurm() as found:
        job = found.submit("sleep 300", "--gpus=1")
        wait_for(lambda: found.processes(job))
        folder = found.folder
    assert not Path(folder).exists()
    time.sleep(0.5)
    mark = f"SLURM_CONF={folder}/slurm.conf".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            assert mark not in path.read_bytes(), path
        except OSError:
            continue
