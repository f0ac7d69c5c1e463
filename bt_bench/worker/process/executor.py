"""Execution of tasks in the process that has the device: checks, measurements, calibration."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from bt_bench.base.errors import UsageError
from bt_bench.base.names import Path
from bt_bench.config import CaseSpec
from bt_bench.protocol import (
    Suite,
    Workload,
    build_workload,
    check_workload,
    default_suite,
    driver_of,
    record_of,
    ref_of_value,
    refuse_unseeded,
    running,
)
from bt_bench.results import Plan, Reason, ReasonCode
from bt_bench.variants import load_reference
from bt_bench.worker.checking.can_fail import refuse_blind
from bt_bench.worker.checking.check import check
from bt_bench.worker.checking.own_code import files_of
from bt_bench.worker.checking.playing import play, survey
from bt_bench.worker.checking.reached import Reached
from bt_bench.worker.isolation.call_stack import with_room
from bt_bench.worker.isolation.state_watch import StateWatch, TamperedError, ToolWatch
from bt_bench.worker.machine import activity
from bt_bench.worker.measuring.bench import Bench
from bt_bench.worker.measuring.case import CONTROL, measure_case
from bt_bench.worker.measuring.methods.interpreter import count_case
from bt_bench.worker.measuring.process_round import ProcessRound
from bt_bench.worker.measuring.regions import NOTHING
from bt_bench.worker.process.culprits import run_without_culprits
from bt_bench.worker.profiling.timeline import take_timeline
from bt_bench.worker.tasks.arm import lacking
from bt_bench.worker.tasks.failures import (
    ArmFailedError,
    device_fault,
    is_out_of_memory,
    reason_of,
    refuse_full_disk,
)
from bt_bench.worker.tasks.outcome import OnRound, RoundProgress, untold
from bt_bench.worker.tasks.plays import Play, ReadCoverage, ReadRan, Survey
from bt_bench.worker.tasks.runner import Attempt, Failure, Finished, Success, Watcher
from bt_bench.worker.tasks.tasks import (
    Calibrate,
    CheckCase,
    CheckConformance,
    Checked,
    CheckOutcomes,
    CountLaunches,
    MeasureCase,
    MeasureRound,
    PrepareRound,
    ReadChanges,
    ResultT,
    RoundOutcome,
    RoundUnit,
    TakeTimeline,
    Task,
)

PROGRESS_SECONDS = 0.1  # between two reports of progress


class Executor:
    """An executor of tasks with the variants of a run.

    Args:
        copies: the variants by name, each with classes that are copies of one another. Process-
            rounds use all of them; everything else uses the first.
        bench: the device.
        plan: the settings for checking and measuring.
        copy_of: returns a second class of a variant for the control; by default the same class.
        suite: the variants' suite; by default the default one.
        watch: notices changes of the process's global state; `None`: nothing does.
        tools: fails tasks whose arms have changed the tools that checks and times rest on; `None`:
            nothing does.
    """

    def __init__(
        self,
        copies: Mapping[str, Sequence[type[Any]]],
        bench: Bench,
        plan: Plan,
        copy_of: Callable[[str], type[Any]] | None = None,
        suite: Suite | None = None,
        watch: StateWatch | None = None,
        tools: ToolWatch | None = None,
    ) -> None:
        self._copies = copies
        self._classes = {name: of_arm[0] for name, of_arm in copies.items()}
        self._suite = suite or default_suite()
        self._copy_of = copy_of or self._classes.__getitem__
        self._bench = bench
        self._plan = plan
        self._watch = watch
        self._tools = tools
        self._conformed = False
        self._built: tuple[CaseSpec, Workload] | None = None
        self._conformance: dict[str, Workload] = {}
        self._can_fail: set[Path] = set()  # paths of operations whose check was seen to fail
        self._seeded: set[str] = set()  # kinds of workloads that were built twice
        self._reached: dict[str, Reached] = {}
        self._round: tuple[object, ProcessRound] | None = None  # the last one, by units and arms
        self._wreck: BaseException | None = None

    def attempt(self, task: Task[Any], arms: Sequence[str], on_round: OnRound) -> Attempt:
        """Run a task once; the answer includes failures of a variant or the device.

        Raises:
            BtBenchError: if a workload cannot be built, or no file can be written.
            Exception: for a defect of bt-bench.
        """
        places = {name: place for place, name in enumerate(arms)}
        # The control is a copy of the first arm.
        activity.current().expect({CONTROL: 0} | places)
        try:
            success = Success(with_room(lambda: self._do(task, arms, _at_times(on_round))))
            if self._tools is not None and arms and self._is_watched(task):
                self._tools.refuse()
            return success
        except TamperedError as error:
            whose = "" if len(arms) == 1 else "; it is not known which variant has"
            message = f"{task.doing}: {error}{whose}"
            reason = Reason(code=ReasonCode.TAMPERED, message=message)
            return Failure(reason, 0 if len(arms) == 1 else None, worker_is_spent=True)
        except ArmFailedError as failed:
            refuse_full_disk(failed.error)
            place = 0 if failed.arm == CONTROL else places.get(failed.arm)
            return self._failure(failed.error, failed.where, place)
        except Exception as error:
            failure = self._failure(error, task.doing, None)
            if not failure.worker_is_spent:
                raise
            return failure

    def _is_watched(self, task: Task[Any]) -> bool:
        """Return whether to check the tools after a task.

        Among the conformance workloads, only the first is followed by a check: a check takes some
        40 ms, mostly asleep, and the checks after the cases find later changes.
        """
        if isinstance(task, CheckConformance):
            first, self._conformed = not self._conformed, True
            return first
        return isinstance(task, CheckCase | MeasureCase | Play)

    def _failure(self, error: BaseException, where: str, place: int | None) -> Failure:
        fault = device_fault(self._bench.device)
        if fault is not None:
            # The error's frames hold objects on a lost device. Freeing them may abort the process
            # before the answer is sent.
            self._wreck = error
        spent = fault is not None or is_out_of_memory(error)
        return Failure(reason_of(error, where, fault), place, spent)

    def _do(self, task: Task[Any], arms: Sequence[str], on_round: OnRound) -> object:
        match task:
            case Calibrate():
                with self._bench.around.host_turn(on_round):
                    return self._bench.calibrate(self._plan)
            case CheckConformance():
                return self._check_conformance(task, arms)
            case CheckCase():
                workload = self._workload(task.case)
                known = record_of(task.case.parameters, workload)
                return Checked(known, self._check(task, arms, workload, on_round))
            case CountLaunches():
                classes = {name: self._classes[name] for name in arms}
                return count_case(classes, self._workload(task.case), task.operations)
            case MeasureCase():
                return self._measure(task, arms, on_round)
            case TakeTimeline():
                workload = self._workload(task.case)
                with self._bench.around.host_turn(on_round):
                    return take_timeline(
                        task,
                        {name: self._classes[name] for name in arms},
                        workload,
                        self._plan,
                        self._bench,
                        on_round,
                    )
            case PrepareRound():
                self._ready_round(task.units, arms)
                return None
            case MeasureRound():
                ready = self._ready_round(task.units, arms)
                values = ready.measure(on_round)
                return RoundOutcome(
                    values,
                    self._changes(ready.newly_hidden()),
                    ready.other_threads,
                    self._bench.around.telemetry.processes(),
                    ready.stops,
                    ready.ticks,
                )
            case ReadChanges():
                return self._changes()
            case Survey():
                return survey(self._suite, {name: self._classes[name] for name in arms})
            case Play():
                if not arms:
                    return play(task, self._suite, None, None, self._bench.device)
                variant = self._classes[arms[0]]
                with self._reached_by(arms[0]).noted() if task.lines else nullcontext():
                    return play(task, self._suite, arms[0], variant, self._bench.device)
            case ReadRan():
                return self._reached_by(arms[0]).ran
            case ReadCoverage():
                reached = self._reached_by(arms[0])
                for ran in task.elsewhere:
                    reached.add(ran)
                # Of a package with many variants only the files that this one uses.
                return reached.coverage(reached.ran)
        raise TypeError(f"{type(task).__name__} is not a task of this executor")

    def _check_conformance(self, task: CheckConformance, arms: Sequence[str]) -> CheckOutcomes:
        """Check each arm on the workload; check opponents on the part that they define."""
        workload = self._conformance_workloads()[task.workload]
        driver = driver_of(self._suite)
        outcomes: CheckOutcomes = {}
        of_kinds: dict[tuple[str, ...], list[str]] = {}
        for arm in arms:
            of_kinds.setdefault(tuple(driver.differences_of(self._classes[arm])), []).append(arm)
        for alike in of_kinds.values():
            tamed = driver.tamed(workload, self._classes[alike[0]])
            outcomes |= self._check(task, alike, tamed)
        return outcomes

    def _check(
        self,
        task: CheckConformance | CheckCase,
        arms: Sequence[str],
        workload: Workload,
        on_round: OnRound = untold,
    ) -> CheckOutcomes:
        if not arms:
            return {}
        self._refuse_blind(task, workload)
        return check(
            {name: self._classes[name] for name in arms},
            workload,
            task.operations,
            self._bench.device,
            rounds=self._plan.check_rounds,
            seed=self._plan.seed,
            title=task.title,
            on_round=on_round,
        )

    def _refuse_blind(self, task: CheckConformance | CheckCase, workload: Workload) -> None:
        """Refuse a suite whose check cannot fail, before any variant is checked.

        Each path of operations is tried once, on the conformance workloads, or on the case's
        workload if none of them can be used.
        """
        left = [each for each in task.operations if each.path not in self._can_fail]
        if not left:
            return
        reference = load_reference(self._suite)
        first, others = (
            [
                each
                for each in some
                if not each.large and len(each.steps) and lacking(reference, each) is None
            ]
            for some in (self._conformance_workloads().values(), [workload])
        )
        if usable := first or others:
            refuse_blind(self._suite, usable, left, self._plan.seed)
            self._can_fail |= {each.path for each in left}

    def _measure(self, task: MeasureCase, arms: Sequence[str], on_round: OnRound) -> object:
        if not arms:
            return {}
        control = self._copied(arms[0]) if self._plan.control else None
        return measure_case(
            task.case.name,
            {name: self._classes[name] for name in arms},
            self._workload(task.case),
            task.operation,
            self._plan,
            self._bench,
            on_round,
            control=control,
            refuse_tampering=NOTHING if self._tools is None else self._tools.refuse,
        )

    def _ready_round(self, units: tuple[RoundUnit, ...], arms: Sequence[str]) -> ProcessRound:
        """Set up a process-round, or return the last one if it is the same."""
        key = (units, tuple(arms))
        if self._round is None or self._round[0] != key:
            self._round = None  # frees it: two are never in memory at once
            copies = {name: self._copies[name] for name in arms}
            ready = ProcessRound(units, copies, self._workload, self._plan, self._bench)
            self._round = (key, ready)
        return self._round[1]

    def _changes(self, hidden: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
        """Return the changes of global state; `hidden` names methods that were set on objects."""
        if self._watch is None:
            return {}
        changes = self._watch.changes()
        if hidden:
            changes[""] = (*changes.get("", ()), f"objects of variants ({', '.join(hidden)})")
        return changes

    def _reached_by(self, arm: str) -> Reached:
        """Return the lines of an arm's own code that scenarios have run."""
        if arm not in self._reached:
            files = files_of(self._suite, self._classes[arm])
            self._reached[arm] = Reached(frozenset(map(str, files)))
        return self._reached[arm]

    def _copied(self, arm: str) -> type[Any]:
        """Return a second class of an arm; its file may run again for that."""
        try:
            with activity.current().running(arm):
                return self._copy_of(arm)
        except (UsageError, MemoryError) as error:
            raise ArmFailedError(arm, error, "while imported for the control") from error

    def _workload(self, case: CaseSpec) -> Workload:
        """Return the workload of a case; the last one is cached."""
        if self._built is None or self._built[0] != case:
            self._built = None  # frees it: two large ones are never in memory at once
            workload = build_workload(case.parameters)
            self._refuse_unseeded(case, workload)
            self._built = (case, workload)
        return self._built[1]

    def _refuse_unseeded(self, case: CaseSpec, workload: Workload) -> None:
        """Refuse a user's `build` that makes another workload each time, once for each kind.

        The suites that come with bt-bench have tests for this, and some large workloads.
        """
        kind = case.parameters.workload
        if ref_of_value(self._suite).folder is not None and kind not in self._seeded:
            refuse_unseeded(case.parameters, workload)
        self._seeded.add(kind)

    def _conformance_workloads(self) -> Mapping[str, Workload]:
        if not self._conformance:
            with running(self._suite, "conformance"):
                self._conformance = dict(self._suite.conformance(self._plan.seed))
            for workload in self._conformance.values():
                check_workload(self._suite, workload)
        return self._conformance


class LocalRunner:
    """A runner of tasks in this process, for tests that script the device and the clock.

    A variant that crashes ends the process, and a lost device fails every later case.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def run(
        self, task: Task[ResultT], arms: Sequence[str], watcher: Watcher | None = None
    ) -> Finished[ResultT]:
        """Do a task with some arms.

        Raises:
            WorkerError: if the task fails even without any arm.
        """

        def on_round(progress: RoundProgress) -> None:
            if watcher is not None:
                watcher.round(progress)

        return run_without_culprits(
            arms, lambda remaining: self._executor.attempt(task, remaining, on_round)
        )

    def renew(self) -> None:
        """Do nothing: there is no process but this one."""

    def abandon(self) -> None:
        """Do nothing, as `renew`."""

    @property
    def calls_made(self) -> int:
        """See `Runner`."""
        return 0


def _at_times(on_round: OnRound) -> OnRound:
    """Pass on the first and the last report of each phase, and at most ten a second in between."""
    last, what = float("-inf"), ""

    def report(progress: RoundProgress) -> None:
        nonlocal last, what
        now = time.monotonic()
        is_last = progress.done >= progress.rounds
        if is_last or progress.what != what or now - last >= PROGRESS_SECONDS:
            last, what = now, progress.what
            on_round(progress)

    return report
