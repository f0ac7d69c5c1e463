"""Process-rounds: one process for all arms, or one for each of those that must not share one."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
from support.forked import forked_workers
from support.scripted_rounds import ARMS, HELLO, request_of, source_of
from support.tiny_gates import NAMES, Impatient, Quiet

from bt_bench.base.errors import UsageError
from bt_bench.results.gate.rounds import GateArm
from bt_bench.results.run.nouns import Method
from bt_bench.runs.gate.processes import MustPartError, ProcessRounds
from bt_bench.runs.gate.sides import Checkers, checkers
from bt_bench.suites.block_tables import operations as ops
from bt_bench.worker import Noticing, Supervisor, WorkerError
from bt_bench.worker.tasks.outcome import RoundProgress


@pytest.fixture(scope="module", autouse=True)
def forked():
    with forked_workers():
        yield


def log_of(tmp_path):
    return [line.split() for line in (tmp_path / "log").read_text().splitlines()]


def test_every_round_is_one_process_with_every_arm_in_it(tmp_path):
    request = request_of(tmp_path, workers=2)
    batches = []
    source = source_of(request, on_batch=batches.append)
    rounds = source.take(3)
    assert len(rounds) == 3
    for taken in rounds:
        assert sorted(taken.order) == sorted(ARMS)
        assert all(set(taken.values[arm]) == set(request.subjects) for arm in ARMS)
        assert all(9.9 < v < 10.1 for v in taken.values[GateArm.BASE].values())
        assert all(9.9 < v < 10.1 for v in taken.values[GateArm.CONTROL].values())
        assert all(10.9 < v < 11.1 for v in taken.values[GateArm.HEAD].values())
        assert taken.values[GateArm.BASE] != taken.values[GateArm.CONTROL]
    assert [len(batch) for batch in batches] == [2, 1]
    measured = [(folder, pid) for folder, pid, what in log_of(tmp_path) if what == "begins"]
    assert len(set(measured)) == len(measured) == 3
    assert {frozenset(folder.split("+")) for folder, _ in measured} == {frozenset(["base", "head"])}
    assert not source.failures


def test_a_wait_for_a_turn_that_does_not_end_is_told(tmp_path, monkeypatch):
    class Waiting(Noticing):
        def run(self, task, arms, watcher=None):
            watcher.round(RoundProgress(0, 1, f"{type(task).__name__} waits", is_news=True))
            return super().run(task, arms)

    monkeypatch.setattr("bt_bench.runs.gate.sides.Noticing", Waiting)
    source = source_of(request_of(tmp_path))
    source.take(1)
    assert source._progress.said == ["PrepareRound waits", "MeasureRound waits"]


def test_what_is_measured_apart_has_a_process_for_each_arm(tmp_path):
    request = request_of(tmp_path, workers=8)
    source = source_of(request, apart={"second": "it patches time"})
    first, second = source.take(2)
    for taken in (first, second):
        assert all(set(taken.values[arm]) == set(request.subjects) for arm in ARMS)
    measured = Counter(folder for folder, _, what in log_of(tmp_path) if what == "begins")
    shared = sum(count for folder, count in measured.items() if "+" in folder)
    assert (shared, measured["base"], measured["head"]) == (2, 4, 2)


def test_they_are_timed_one_by_one_after_all_are_ready(tmp_path):
    source_of(request_of(tmp_path)).take(4)
    what = [line[2] for line in log_of(tmp_path)]
    assert what[-8:] == ["begins", "ends"] * 4
    assert set(what[:-8]) == {"ahead", "prepared"}


def test_arms_are_imported_in_each_order_equally_often_as_follows_from_the_seed(tmp_path):
    """Holds however rounds are divided, since an arm that is imported first is faster."""
    request = request_of(tmp_path, workers=4)
    source = source_of(request)
    orders = [taken.order for count in (1, 5) for taken in source.take(count)]
    assert sorted(orders) == sorted(permutations(ARMS))
    assert [taken.order for taken in source_of(request).take(6)] == orders


def test_no_process_is_left(tmp_path):
    source_of(request_of(tmp_path)).take(2)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(("apart", "whole"), [({}, 5), ({"second": "why"}, 1)])
def test_what_is_whole_is_kept_and_no_process_is_left_when_the_user_breaks_off(
    tmp_path, apart, whole
):
    request, kept = request_of(tmp_path, workers=12), []
    source = ProcessRounds(request, request.subjects, HELLO, Impatient(5), kept.append, apart)
    with pytest.raises(KeyboardInterrupt):
        source.take(8)
    (rounds,) = kept
    assert len(rounds) == whole
    assert all(set(taken.values) == set(GateArm) for taken in rounds)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("when", ["prepare", "measure"])
def test_a_process_that_dies_once_is_repeated(tmp_path, when):
    request = request_of(tmp_path, head={"second": {"us": 11.0, "fault": f"kills_once {when}"}})
    source = source_of(request)
    rounds = source.take(2)
    assert source.failures == {}
    assert all(len(taken.values[GateArm.HEAD]) == 2 for taken in rounds)
    (warning,) = source.warnings
    assert warning.startswith("new: second, while ")
    assert "the worker was ended by SIGKILL" in warning
    assert warning.endswith("it did not happen again when that was repeated")


FAULTS = [("kills measure", "SIGKILL"), ("kills prepare", "SIGKILL"), ("raises measure", "no luck")]


@pytest.mark.parametrize(("fault", "why"), FAULTS)
def test_a_variant_that_fails_beside_others_is_to_be_measured_apart(tmp_path, fault, why):
    request = request_of(tmp_path, head={"second": {"us": 11.0, "fault": fault}})
    with pytest.raises(MustPartError) as caught:
        source_of(request).take(1)
    assert list(caught.value.reasons) == ["second"]
    assert caught.value.reasons["second"].startswith(
        "it failed beside the other revision (new: while "
    )
    assert why in caught.value.reasons["second"]


@pytest.mark.parametrize(
    ("fault", "why"), [*FAULTS, ("import", "the variant file does not import")]
)
def test_a_variant_that_fails_alone_has_no_value_and_is_left_out(tmp_path, fault, why):
    request = request_of(tmp_path, head={"second": {"us": 11.0, "fault": fault}}, workers=4)
    source = source_of(request, apart={"second": "it failed"})
    first, second = source.take(2)
    for taken in (first, second):
        assert {subject.variant for subject in taken.values[GateArm.HEAD]} == {"first"}
    assert {subject.variant for subject in first.values[GateArm.BASE]} == {"first", "second"}
    assert {subject.variant for subject in second.values[GateArm.BASE]} == {"first"}
    ((culprit, message),) = source.failures.items()
    assert culprit == ("second", None, None)
    assert message.startswith("new: " if fault == "import" else "new: while ")
    assert why in message
    assert multiprocessing.active_children() == []


def test_a_variant_that_does_not_bear_another_revision_beside_it(tmp_path):
    request = request_of(tmp_path, head={"second": {"us": 11.0, "fault": "lonely"}})
    with pytest.raises(MustPartError, match=r"cannot be imported as often as .*: new: "):
        source_of(request).take(1)
    source = source_of(request, apart={"second": "it is lonely"})
    assert len(source.take(1)[0].values[GateArm.HEAD]) == 2
    assert multiprocessing.active_children() == []


def test_a_revision_that_changes_what_all_share_is_to_be_measured_apart(tmp_path):
    request = request_of(tmp_path, head={"second": {"us": 1.0, "changes": "torch (num_threads)"}})
    with pytest.raises(MustPartError) as caught:
        source_of(request).take(1)
    # It is not known which of them did it.
    assert list(caught.value.reasons) == list(NAMES)
    assert "torch (num_threads)" in str(caught.value)


def test_a_head_that_slows_whoever_runs_next_is_to_be_measured_apart(tmp_path):
    request = request_of(tmp_path, base={"second": {"us": 1.0, "influence": 0.04}})
    source = source_of(request)
    with pytest.raises(MustPartError, match=r"the base in stage/\S+ differs by 4\.\d+ %"):
        source.take(8)
    request = request_of(tmp_path / "less", base={"second": {"us": 1.0, "influence": 0.01}})
    assert len(source_of(request).take(8)) == 8


TWO = ("GPU-a", "GPU-b")


def figures(rounds):
    return [(taken.order, taken.values, taken.ticks) for taken in rounds]


@pytest.mark.parametrize("apart", [{}, {"second": "it patches time"}])
def test_devices_share_the_rounds_and_each_round_is_of_one(tmp_path, apart):
    source = source_of(request_of(tmp_path, workers=8, devices=TWO), apart=apart)
    rounds = source.take(4)
    serial = source_of(request_of(tmp_path / "one", workers=8), apart=apart).take(4)
    assert figures(rounds) == figures(serial)
    assert {taken.device for taken in rounds} == {0, 1}
    assert {taken.device for taken in serial} == {0}
    assert multiprocessing.active_children() == []


def test_devices_take_turns_if_no_two_rounds_fit(tmp_path):
    request = request_of(tmp_path, workers=2, devices=TWO)
    rounds = source_of(request, apart={"second": "it patches time"}).take(3)
    assert [taken.device for taken in rounds] == [0, 1, 0]


def test_processes_of_one_device_are_timed_one_by_one(tmp_path):
    source_of(request_of(tmp_path, workers=8, devices=TWO)).take(8)
    running = 0
    for _, _, what in log_of(tmp_path):
        running += {"begins": 1, "ends": -1}.get(what, 0)
        assert running in (0, 1, 2)


def test_rounds_of_a_device_that_falls_off_are_measured_on_the_other(tmp_path):
    lost = {"second": {"us": 10.0, "falls_off": "GPU-b"}}
    source = source_of(request_of(tmp_path, base=lost, workers=4, devices=TWO))
    rounds = source.take(6)
    assert [taken.device for taken in rounds] == [0] * 6
    assert sorted(taken.order for taken in rounds) == sorted(permutations(ARMS))
    assert source.workers == 2  # as many as that GPU had before
    assert all(set(taken.values) == set(GateArm) for taken in rounds)
    assert (source.failures, source.warnings) == ({}, [])
    assert source._progress.said == [
        "device 2 (GPU-b) is given up: no fresh worker could be started: no GPU to run on: "
        "GPU-b is none; its rounds are measured anew"
    ]
    assert [(at, each.rounds) for at, each in source.lost.items()] == [(1, 2)]
    again = source_of(source._request, before=source)
    assert {taken.device for taken in again.take(2)} == {0}
    assert (again._progress.said, again.workers, again.lost[1].rounds) == ([], 2, 0)
    assert multiprocessing.active_children() == []


def test_a_device_that_is_gone_before_the_next_batch_is_given_up(tmp_path):
    request = request_of(tmp_path, workers=2, devices=TWO)
    source = source_of(request)
    first = source.take(2)
    (tmp_path / "lost-GPU-a").touch()
    assert [taken.device for taken in (*first, *source.take(3))] == [0, 1, 1, 1, 1]
    assert source._progress.said[0].startswith("device 1 (GPU-a) is given up: no GPU to run on")


@pytest.mark.parametrize("devices", [TWO, TWO[:1]])
def test_without_a_device_rounds_end_and_those_that_were_whole_are_kept(
    tmp_path, devices, monkeypatch
):
    lost = {n: {"us": 10.0, "falls_off": gpu} for n, gpu in zip(NAMES, TWO, strict=True)}
    kept = []
    request = request_of(tmp_path, base=lost, workers=4, devices=devices)
    source = source_of(request, on_batch=kept.extend)
    measure, measured = source._measure, Counter()

    def falls_off_later(worker, crew, names):
        """The first round of each device is of variants that stay, and so whole."""
        measured[worker._setup.device] += 1
        return measure(worker, crew, [] if measured[worker._setup.device] == 1 else names)

    monkeypatch.setattr(source, "_measure", falls_off_later)
    with pytest.raises(WorkerError, match="no GPU to run on"):
        source.take(4)
    assert {taken.device for taken in kept} == set(range(len(devices)))
    assert multiprocessing.active_children() == []


def test_fewer_processes_than_devices_are_refused(tmp_path):
    with pytest.raises(UsageError, match="--workers 1: there are 2 devices; expected as many"):
        request_of(tmp_path, workers=1, devices=TWO)


def test_revisions_are_checked_on_a_device_each(tmp_path):
    request = request_of(
        tmp_path,
        base={"first": {"us": 1.0, "fault": "check one"}},
        head={"second": {"us": 1.0, "fault": "check conformance:corners"}},
        devices=(*TWO, "GPU-c"),
    )
    with checkers(request, Quiet()) as workers:
        assert len(workers.environments) == 3
        assert workers.failures(NAMES, Quiet()) == {
            ("first", ops.STAGE, "one"): "old: slot 3 is 17",
            ("second", None, None): "new: conformance:corners: slot 3 is 17",
        }


def test_a_checking_worker_that_was_replaced_lives_on_after_its_checks(tmp_path, monkeypatch):
    """It has the changes that variants made, and would end with the thread that started it."""
    fresh, starters = Supervisor._fresh, []

    def noted(supervisor):
        starters.append(threading.current_thread())
        return fresh(supervisor)

    monkeypatch.setattr(Supervisor, "_fresh", noted)
    fault = {"first": {"us": 1.0, "fault": "kills_once check"}}
    request = request_of(tmp_path, base=fault, devices=TWO)
    base = replace(request.sides[GateArm.BASE], label="HEAD@{1}")
    sides = {**request.sides, GateArm.BASE: base}
    with checkers(replace(request, sides=sides), Quiet()) as workers:
        assert workers.failures(NAMES, Quiet()) == {}
        assert [text.partition(",")[0] for text in workers.warnings] == ["HEAD@{1}: first"]
        assert len(starters) == 3
        assert all(thread.is_alive() for thread in starters)


def test_a_device_that_is_lost_while_it_checks_is_named(tmp_path, monkeypatch):
    def gone(_worker, side, *_):
        if side.label == "new":
            raise WorkerError("no GPU to run on")
        return {}

    monkeypatch.setattr(Checkers, "_wrong", gone)
    with (
        checkers(request_of(tmp_path, devices=TWO), Quiet()) as workers,
        pytest.raises(WorkerError, match=r"device 2 \(GPU-b\), which checks: no GPU to run on"),
    ):
        workers.failures(NAMES, Quiet())


def test_strangers_on_the_gpu_are_told(tmp_path):
    source = source_of(request_of(tmp_path, base={"second": {"us": 1.0, "visitors": 3}}, workers=2))
    source.take(2)
    assert source.disturbances() == [
        "processes that are not the gate's were on the GPU in 2 of 2 processes of it"
    ]
    quiet = source_of(request_of(tmp_path / "no", base={"second": {"us": 1.0, "visitors": 2}}))
    quiet.take(2)
    assert quiet.disturbances() == []


def test_a_quota_that_stops_processes_is_told(tmp_path):
    source = source_of(request_of(tmp_path, base={"second": {"us": 1.0, "stops": 3}}, workers=2))
    source.take(2)
    assert source.disturbances() == ["the container's CPU quota stopped 2 of 2 processes of it"]
    (warning,) = source.stop_warnings()
    assert "Give it a larger quota, or fewer --workers" in warning
    quiet = source_of(request_of(tmp_path / "no", base={"second": {"us": 1.0}}))
    quiet.take(2)
    assert quiet.stop_warnings() == []


def test_rounds_have_the_ticks_that_their_processes_saw(tmp_path):
    script = {"second": {"us": 1.0, "ticks": {"events": 1.024}}}
    (taken,) = source_of(request_of(tmp_path, base=script, workers=2)).take(1)
    assert taken.ticks == {Method.EVENTS: 1.024}


def test_what_a_revision_changes_when_it_is_imported_is_known_before_any_timing(tmp_path):
    request = request_of(tmp_path, head={"second": {"us": 1.0, "imports": "threads (spinner)"}})
    with checkers(request, Quiet()) as workers:
        changing = workers.changing(Quiet())
    assert changing == {"second": "new changes threads (spinner) when it is imported"}


def test_there_are_no_rounds_without_variants(tmp_path):
    broken = {name: {"us": 1.0, "fault": "raises prepare"} for name in NAMES}
    source = source_of(
        request_of(tmp_path, base=broken, workers=3), apart=dict.fromkeys(NAMES, "both failed")
    )
    assert len(source.take(5)) == 1  # the one in which both failed
    assert source.take(5) == []


def test_a_file_that_does_not_import_is_named_with_its_revision(tmp_path):
    request = request_of(tmp_path, base={"second": {"us": 1.0, "fault": "import"}})
    with (
        pytest.raises(UsageError, match=r"^old: .*second\.py:1: the variant file does not import"),
        checkers(request, Quiet()),
    ):
        pass
    assert multiprocessing.active_children() == []


def test_wrong_variants_are_found_on_either_side(tmp_path):
    request = request_of(
        tmp_path,
        base={"first": {"us": 1.0, "fault": "check one"}},
        head={"second": {"us": 1.0, "fault": "check conformance:corners"}},
    )
    with checkers(request, Quiet()) as workers:
        assert workers.failures(NAMES, Quiet()) == {
            ("first", ops.STAGE, "one"): "old: slot 3 is 17",
            ("second", None, None): "new: conformance:corners: slot 3 is 17",
        }
        assert workers.failures([], Quiet()) == {}
        assert workers.warnings == []


def test_a_check_that_crashes_once_is_told(tmp_path):
    request = request_of(tmp_path, head={"second": {"us": 11.0, "fault": "kills_once check"}})
    with checkers(request, Quiet()) as workers:
        assert workers.failures(NAMES, Quiet()) == {}
    (warning,) = workers.warnings
    assert warning.startswith("new: second, conformance:corners: while checked: the worker was")
