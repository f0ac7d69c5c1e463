"""Shards are given out until all are done, whatever workers do, and each is noted once."""

from __future__ import annotations

import json
from concurrent.futures import Future

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.runs.cluster import LEDGER_NAME, Ended, Ledger, Plan, run_shards
from bt_bench.runs.progress import Lines

PLAN = Plan(shards=3, arguments=["sweep", "c"], resumed=["sweep"], versions={})


class LostError(Exception):
    """Stands for the error of an engine whose worker is gone."""


class FakeEngine:
    """Ends each shard at once, as told: with an exit code, an exception, or not at all."""

    def __init__(self, *told):
        self._told = list(told)
        self.tasks = []
        self.futures = []

    def submit(self, task):
        self.tasks.append(task)
        how = self._told.pop(0) if self._told else 0
        future: Future[Ended] = Future()
        self.futures.append(future)
        if isinstance(how, Exception):
            future.set_exception(how)
        elif how != "waits":
            if how in (0, 5):
                task.folder.mkdir(exist_ok=True)
            future.set_result(
                Ended(code=how, host="h", device=f"gpu{task.index}", seconds=1.5, tail="why\nlast")
            )
        return future

    def num_running(self):
        return 1


@pytest.fixture
def ledger(tmp_path):
    return Ledger.begin(tmp_path / "run.shards", PLAN)


def run(ledger, engine, attempts=3):
    said: list[str] = []
    run_shards(ledger, engine, attempts, Lines(said.append))
    return said


def test_each_shard_is_measured_once(ledger):
    engine = FakeEngine(0, 5)  # a variant that failed a case is a result
    run(ledger, engine)
    assert [task.arguments[2:] for task in engine.tasks] == [
        ["--shard", f"{index}/3"] for index in (1, 2, 3)
    ]
    assert [task.folder.name for task in engine.tasks] == ["1-of-3", "2-of-3", "3-of-3"]
    assert ledger.done == 3
    assert Ledger.open(ledger.folder).missing() == []
    lines = (ledger.folder / LEDGER_NAME).read_text().splitlines()
    devices = {json.loads(line)["device"] for line in lines[1:]}
    assert devices == {"gpu1", "gpu2", "gpu3"}


def test_a_lost_worker_and_a_failure_are_tried_again(ledger):
    engine = FakeEngine(0, LostError("manager 7"), 70)
    said = run(ledger, engine)
    assert sorted(task.index for task in engine.tasks) == [1, 2, 2, 3, 3]
    assert any("shard 2/3: attempt 1 of 3 failed, again: its worker was lost" in s for s in said)
    assert any("shard 3/3: attempt 1 of 3 failed, again: last" in s for s in said)
    assert ledger.done == 3


def test_a_shard_that_always_fails_does_not_stop_the_others(ledger):
    engine = FakeEngine(LostError("a"), 0, 0, LostError("b"), LostError("c"))
    with pytest.raises(UsageError) as refused:
        run(ledger, engine)
    assert (
        "1 shard of 3 not done (1); shard 1 after 3 attempts: its worker was lost: LostError: c"
        in str(refused.value)
    )
    assert f"continue with --resume {ledger.folder}" in str(refused.value)
    assert [task.index for task in Ledger.open(ledger.folder).missing()] == [1]


def test_nothing_more_is_tried_where_nothing_has_worked(ledger):
    engine = FakeEngine(2, 2, "waits", *[2] * 20)
    with pytest.raises(UsageError, match="3 shards of 3 not done"):
        run(ledger, engine, attempts=4)
    assert engine.futures[2].cancelled()
    assert len(engine.tasks) <= 6


def test_a_resumed_sweep_runs_what_is_not_done(ledger):
    with pytest.raises(UsageError):
        run(ledger, FakeEngine(0, LostError("a"), LostError("a")), attempts=1)
    again = Ledger.open(ledger.folder)
    engine = FakeEngine()
    run(again, engine)
    assert [task.index for task in engine.tasks] == [2, 3]


@pytest.mark.parametrize("end", ["", "\n{", "\nx", '\n{"shard": 2, "ho'])
def test_a_line_that_was_cut_off_costs_nothing_but_a_look(ledger, end):
    run(ledger, FakeEngine())
    path = ledger.folder / LEDGER_NAME
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:2]) + end)
    assert len(Ledger.open(ledger.folder).missing()) in (2, 3)


def test_a_shard_whose_folder_is_gone_is_measured_again(ledger):
    run(ledger, FakeEngine())
    (ledger.folder / "2-of-3").rmdir()
    assert [task.index for task in Ledger.open(ledger.folder).missing()] == [2]


def test_shards_are_never_overwritten_and_no_other_folder_is_taken(ledger, tmp_path):
    with pytest.raises(UsageError, match=r"exists, and shards are never overwritten; pass --res"):
        Ledger.begin(ledger.folder, PLAN)
    with pytest.raises(UsageError, match=f"has no {LEDGER_NAME}; expected the folder that a sweep"):
        Ledger.open(tmp_path)
    (ledger.folder / LEDGER_NAME).write_text("{}\n")
    with pytest.raises(UsageError, match="line 1 is no plan of shards: Field required"):
        Ledger.open(ledger.folder)


def test_other_versions_are_refused():
    plan = PLAN.model_copy(update={"versions": {"torch": "2.11", "triton": "3.6"}})
    plan.check_versions({"torch": "2.11", "triton": "3.6"})
    with pytest.raises(UsageError, match=r"here is triton none in place of 3\.6; install"):
        plan.check_versions({"torch": "2.11"})
