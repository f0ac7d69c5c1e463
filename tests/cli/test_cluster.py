"""`sweep --cluster` gives out shards by the command that was typed, and merges them."""

from __future__ import annotations

import shlex
import sys
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.commands import TINY, run

from bt_bench.base.errors import ExitCode
from bt_bench.runs.cluster import Ended, parsl_engine

CLUSTER = "scheduler: local\ndevice: cpu\ndevices: [one, two]\nshards: 3\nattempts: 1\n"


@pytest.fixture
def given(tmp_path, monkeypatch):
    """A config and a cluster, whose workers note their tasks and measure nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(TINY)
    (tmp_path / "two.yaml").write_text(CLUSTER)
    tasks, merged, fails = [], [], []

    class FakeEngine:
        def submit(self, task):
            tasks.append(task)
            future: Future[Ended] = Future()
            code = 70 if task.index in fails else 0
            if not code:
                task.folder.mkdir()
            future.set_result(Ended(code=code, host="h", device="d", seconds=1.0, tail="why"))
            return future

        def num_running(self):
            return 0

    @contextmanager
    def engine(spec, folder):
        yield FakeEngine()

    def merge(runs, out, *, as_json):
        merged.append(([path.name for path in runs], out))
        return ExitCode.OK

    monkeypatch.setattr(parsl_engine, "parsl_engine", engine)
    monkeypatch.setattr("bt_bench.cli.merge.merge", merge)
    return tasks, merged, fails


def test_shards_are_begun_as_the_sweep_was_typed(given):
    tasks, merged, _ = given
    outcome = run(
        "sweep", "my.yaml", "--cluster", "two.yaml", "--out", "reports/all", "-k", "t*",
        "--set", "seed=1", "--operations", "step", "--variants", "fused,baseline",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    here = Path.cwd()
    words = [
        *("sweep", f"{here}/my.yaml", "--variants", "fused,baseline", "--operations", "step"),
        *("-k", "t*", "--set", "seed=1", "--device", "cpu", "--shard", "2/3"),
    ]
    assert tasks[1].arguments == words
    assert tasks[1].resumed == ["sweep", "--device", "cpu"]
    assert tasks[1].folder == here / "reports/all.shards/2-of-3"
    assert merged == [(["1-of-3", "2-of-3", "3-of-3"], here / "reports/all")]
    assert "1 case × 1 operation × 2 variants, in 3 shards" in outcome.err


def test_it_is_resumed_where_it_stopped(given):
    tasks, merged, fails = given
    fails.append(2)
    outcome = run("sweep", "my.yaml", "--cluster", "two.yaml", "--out", "all")
    assert outcome.code == 2
    assert "stopped; 2 of 3 shards are done, in " in outcome.err
    again = next(line for line in outcome.err.splitlines() if "continue with: " in line)
    fails.clear()
    tasks.clear()
    resumed = run("sweep", *shlex.split(again.split(" sweep ")[1]))
    assert resumed.code == 0, resumed.err
    assert [task.index for task in tasks] == [2]
    assert merged == [(["1-of-3", "2-of-3", "3-of-3"], Path.cwd() / "all")]


def test_without_a_folder_one_is_named_after_the_config(given):
    assert run("sweep", "my.yaml", "--cluster", "two.yaml").code == 0
    (folder,) = Path("reports").iterdir()
    assert folder.name.startswith("my-")
    assert folder.name.endswith(".shards")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["my.yaml", "--shard", "1/2"], "--shard has no meaning with --cluster; leave one of"),
        (["my.yaml", "--device", "cpu"], "--device has no meaning with --cluster"),
        (["my.yaml", "--dry-run"], "--dry-run has no meaning with --cluster"),
        ([], "CONFIG is missing; expected a file or a stock config, which every worker reads"),
        (["-"], "CONFIG is missing"),
        (["my.yaml", "--out", "."], "exists, and a run is never overwritten"),
        (["my.yaml", "--variants", "none"], "none"),
        (["--resume", "."], "has no ledger.jsonl; expected the folder that a sweep with --clust"),
        (["my.yaml", "--resume", "."], "--resume continues a sweep as it was started; leave my"),
        (["--resume", ".", "-k", "a"], "--resume continues a sweep as it was started; leave -k"),
    ],
)
def test_what_cannot_be_is_refused_before_any_job(given, options, message):
    tasks, _, _ = given
    outcome = run("sweep", *options, "--cluster", "two.yaml")
    assert (outcome.code, tasks) == (2, [])
    assert message in outcome.err.replace("\n", " ")
    assert not Path("reports").exists()


def test_a_host_without_a_gpu_is_named(given, monkeypatch):
    monkeypatch.setattr("bt_bench.worker.gpu_uuids", list)
    outcome = run("sweep", "my.yaml", "--cluster", "local")
    assert "--cluster local: this host has no GPU that NVML lists; expected one" in outcome.err
    monkeypatch.setattr("bt_bench.worker.gpu_uuids", lambda: ["GPU-1", "GPU-2"])
    assert run("sweep", "my.yaml", "--cluster", "local", "--out", "all").code == 0
    assert len(given[0]) == 8


def test_parsl_is_asked_for_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(TINY)
    (tmp_path / "two.yaml").write_text(CLUSTER)
    monkeypatch.setitem(sys.modules, "parsl", None)
    outcome = run("sweep", "my.yaml", "--cluster", "two.yaml")
    assert outcome.code == 2
    assert "--cluster needs Parsl, which is not installed; pip install 'bt-bench[clu" in outcome.err
