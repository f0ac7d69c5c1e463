"""Checks of all workloads, with a runner that finds nothing wrong."""

from __future__ import annotations

from types import SimpleNamespace

from support.commands import TINY

from bt_bench.config.load import load_config
from bt_bench.runs.check import check_conformance
from bt_bench.worker import Finished


def test_conformance_says_how_many_of_its_workloads_are_done(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    spec = load_config(tmp_path / "tiny.yaml")
    told, ran = [], []

    def run(task, arms, watcher):
        ran.append(task.workload)
        return Finished({}, {})

    watcher = SimpleNamespace(round=told.append)
    assert list(check_conformance(SimpleNamespace(run=run), spec, [], watcher)) == []
    assert len(ran) > 3
    assert {each.what for each in told} == {"conformance workloads"}
    assert [(each.done, each.rounds) for each in told] == [(n, len(ran)) for n in range(len(ran))]
