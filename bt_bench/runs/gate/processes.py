"""Process-rounds: every round is measured by a process of its own, all arms in it side by side.

The processes of several rounds are started and set up together, which takes seconds. Then they are
timed one at a time, while the others wait. A variant that must not share a process, or cannot, has
a process for each of its arms instead: it is measured apart.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from bt_bench import __version__
from bt_bench.analysis import certain_influence
from bt_bench.errors import BtBenchError, UsageError
from bt_bench.protocol import info_of, load_suite
from bt_bench.results import (
    Environment,
    GateArm,
    GateRound,
    Reason,
    ReasonCode,
    Recorder,
    Recording,
    Revision,
    Subject,
    Tool,
    format_bytes,
    metric_of,
)
from bt_bench.runs.gate.sides import (
    Culprit,
    RoundsRequest,
    checkers,
    greet,
    noticing,
    started,
)
from bt_bench.runs.gate.wanted import round_plan
from bt_bench.runs.progress import Progress
from bt_bench.worker import (
    Ahead,
    ArmSetup,
    Finished,
    Hello,
    MeasureRound,
    PrepareRound,
    ResultT,
    RoundOutcome,
    RoundUnit,
    Runner,
    Supervisor,
    Task,
    WorkerSetup,
    available_bytes,
)

MAX_WORKERS = 24
HOST_BYTES_OF_WORKER = 3 * 2**30  # torch, CUDA's libraries and a context's host side
DEVICE_BYTES_OF_WORKER = 2**30  # a context, and the smallest blocks of torch's allocator
COPIES = 2  # the tensors of a variant, and a copy from before the first step
# Copies of the same code differ in speed, each for as long as its process lives: by 0.4 % (the
# standard deviation) in what Python alone does, and by 0.4 to 1 % in `host_us` on an H200's host.
CODE_COPIES = 4
MOST_OF_OTHER_THREADS = 0.2  # of the CPU time; libraries of CUDA take next to none

Values = dict[GateArm, dict[Subject, float]]


class MustPartError(BtBenchError):
    """Some variants cannot be measured in one process; the rounds so far are worth nothing.

    Args:
        reasons: per variant why, as a clause.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {why}" for name, why in reasons.items()))
        self.reasons = dict(reasons)


@dataclass(frozen=True)
class _Crew:
    """What one process of a round measures.

    Args:
        arms: in the order in which they are imported.
        names: of the variants.
    """

    arms: tuple[GateArm, ...]
    names: tuple[str, ...]

    @property
    def is_shared(self) -> bool:
        return len(self.arms) > 1

    def place(self, arm_name: str) -> tuple[str, GateArm]:
        """The variant and the arm of a name that a worker knows."""
        variant, _, arm = arm_name.rpartition("@")
        return variant, GateArm(arm)

    @property
    def arm_names(self) -> list[str]:
        return [_arm_name(name, arm) for name in self.names for arm in self.arms]


def _arm_name(variant: str, arm: GateArm) -> str:
    return f"{variant}@{arm.value}"


class ProcessRounds:
    """A `RoundSource` whose rounds are measured when they are asked for.

    A variant that fails in a process of its own (twice, for a crash) is added to `failures` and
    takes no part in later rounds. A crash that does not happen again is only described in
    `warnings`.

    Args:
        request: what to measure.
        subjects: which of its subjects.
        hello: device and memory, as an earlier worker found them.
        progress: is told how far it is.
        on_batch: is given the rounds of each batch of workers as soon as they are measured.
        apart: variants that get a process for each arm, and why.
        before: the source whose rounds are taken anew; what failed in them is not tried again.

    Raises:
        UsageError: where not even one worker fits into memory.
    """

    def __init__(
        self,
        request: RoundsRequest,
        subjects: Sequence[Subject],
        hello: Hello,
        progress: Progress,
        on_batch: Callable[[list[GateRound]], None] = lambda _: None,
        apart: Mapping[str, str] | None = None,
        before: ProcessRounds | None = None,
    ) -> None:
        self._on_batch = on_batch
        self._request = replace(request, device=hello.device)
        self._subjects = set(subjects)
        self._progress = progress
        self._names = [n for n in request.variants if any(s.variant == n for s in subjects)]
        self._apart = frozenset(apart or ())
        self._rng = random.Random(request.seed)
        self._influences: dict[Subject, list[float]] = {}
        self._visited = self._timed = 0  # processes, with strangers on the GPU and in all
        self.workers = _num_workers(request, hello, shared=bool(set(self._names) - self._apart))
        self.failures: dict[Culprit, str] = {} if before is None else before.failures
        self.warnings: list[str] = [] if before is None else before.warnings
        self._names = [name for name in self._names if (name, None, None) not in self.failures]

    def take(self, count: int) -> list[GateRound]:
        """The next rounds; fewer where no variant is left to measure.

        Raises:
            MustPartError: if variants turn out to need processes of their own.
        """
        taken: list[GateRound] = []
        self.announce(count)
        while len(taken) < count and self._names:
            batch = self.take_batch(count - len(taken))
            self._on_batch(batch)
            taken += batch
        return taken

    def disturbances(self) -> list[str]:
        """What else was seen on the machine, a clause each."""
        if not self._visited:
            return []
        return [
            f"processes that are not the gate's were on the GPU in {self._visited} of "
            f"{self._timed} processes of it"
        ]

    def announce(self, rounds: int) -> None:
        """Tells whoever watches how many rounds are to come."""
        self._progress.start(rounds * len(self._crews()), unit="processes")

    def take_batch(self, most: int) -> list[GateRound]:
        """The next rounds whose workers can all exist at once; not more than `most`.

        Raises:
            MustPartError: as `take`.
        """
        num_rounds = min(most, max(1, self.workers // len(self._crews())))
        rounds = [self._crews() for _ in range(num_rounds)]
        values: list[Values] = [{} for _ in rounds]
        with ExitStack() as stack:
            self._progress.phase(f"setting up {sum(map(len, rounds))} processes")
            workers = [
                (index, crew, self._start(stack, crew))
                for index, crews in enumerate(rounds)
                for crew in crews
            ]
            ready = [self._set_up(worker, crew) for _, crew, worker in workers]
            self._progress.phase("timing")
            for (index, crew, worker), names in zip(workers, ready, strict=True):
                outcome = self._measure(worker, crew, names)
                self._timed += 1
                self._visited += (outcome.gpu_processes or 0) > len(workers)
                for arm, found in self._values(crew, outcome).items():
                    values[index].setdefault(arm, {}).update(found)
                self._progress.advance()
            for _, _, worker in workers:
                worker.abandon()  # all at once, since each takes a while to end
        self._names = [name for name in self._names if (name, None, None) not in self.failures]
        self._refuse_influence()
        orders = [tuple(dict.fromkeys(a for crew in crews for a in crew.arms)) for crews in rounds]
        return [GateRound(order, of) for order, of in zip(orders, values, strict=True)]

    def _crews(self) -> list[_Crew]:
        """The processes of a round, in random order of time, each with its arms in random order."""
        arms = list(self._request.sides)
        together = tuple(name for name in self._names if name not in self._apart)
        alone = tuple(name for name in self._names if name in self._apart)
        crews = [_Crew(tuple(self._rng.sample(arms, len(arms))), together)] if together else []
        crews += [_Crew((arm,), alone) for arm in arms if alone]
        return self._rng.sample(crews, len(crews))

    def _start(self, stack: ExitStack, crew: _Crew) -> Supervisor:
        request = self._request
        series = [metric.series for metrics in request.metrics.values() for metric in metrics]
        plan = round_plan(
            request.spec.plan,
            [one for one in series if one is not None],
            self._rng.randrange(2**31),
        )
        ahead = Ahead(PrepareRound(self._units(crew)), tuple(crew.arm_names))
        arms = tuple(
            ArmSetup(_arm_name(entry.name, arm), entry, arm.value, request.sides[arm].isolation)
            for arm in crew.arms
            for entry in request.sides[arm].entries
            if entry.name in crew.names
        )
        setup = WorkerSetup(
            request.device,
            arms,
            plan,
            request.spec.suite,
            ahead,
            watched=crew.is_shared,
            copies=min(CODE_COPIES, plan.instances) if crew.is_shared else 1,
        )
        return started(stack, setup, request.serve)

    def _units(self, crew: _Crew) -> tuple[RoundUnit, ...]:
        """What is timed: per case and operation, the arms and series of the subjects."""
        units = []
        for case in self._request.spec.cases:
            for operation, metrics in self._request.metrics.items():
                wanted = [
                    s
                    for s in self._subjects
                    if (s.case, s.operation) == (case.name, operation) and s.variant in crew.names
                ]
                names = {subject.metric for subject in wanted}
                variants = {subject.variant for subject in wanted}
                series = tuple(
                    m.series for m in metrics if m.name in names and m.series is not None
                )
                if series:
                    arms = tuple(n for n in crew.arm_names if crew.place(n)[0] in variants)
                    heads = frozenset(n for n in arms if crew.place(n)[1] is GateArm.HEAD)
                    intruders = heads if crew.is_shared else frozenset()
                    units.append(RoundUnit(case, operation, series, arms, intruders))
        return tuple(units)

    def _set_up(self, worker: Supervisor, crew: _Crew) -> list[str]:
        """Waits until a worker is ready; returns the arms that are set up."""
        try:
            greet(worker, *(self._request.sides[arm] for arm in crew.arms))
        except UsageError as error:
            culprits = [name for name in crew.names if f"/{name}.py" in str(error)]
            if not (crew.is_shared and culprits):
                raise
            # The checks have imported it, so it is the other revision that it does not bear.
            why = f"it cannot be imported beside the other revision: {error}"
            raise MustPartError(dict.fromkeys(culprits, why)) from None
        names = crew.arm_names
        finished = self._run(worker, crew, PrepareRound(self._units(crew)), names)
        self._blame(crew, finished.failed)
        return [name for name in names if name not in finished.failed]

    def _measure(self, worker: Supervisor, crew: _Crew, names: Sequence[str]) -> RoundOutcome:
        finished = self._run(worker, crew, MeasureRound(self._units(crew)), names)
        self._blame(crew, finished.failed)
        self._refuse_changes(crew, finished.value)
        return finished.value

    def _values(self, crew: _Crew, outcome: RoundOutcome) -> Values:
        values: Values = {}
        for found in outcome.values:
            variant, arm = crew.place(found.variant)
            subject = Subject(found.operation, found.case, variant, metric_of(found.series).name)
            if subject in self._subjects:
                values.setdefault(arm, {})[subject] = found.value
                if found.influence is not None and arm is not GateArm.HEAD:
                    self._influences.setdefault(subject, []).append(found.influence)
        return values

    def _run(
        self, worker: Supervisor, crew: _Crew, task: Task[ResultT], names: Sequence[str]
    ) -> Finished[ResultT]:
        """Has a worker do a task; what is refused in a shared process may be well in one alone."""
        try:
            return self._noticing(worker, crew).run(task, names)
        except UsageError as error:
            if not crew.is_shared:
                raise
            why = f"it was refused beside the other revision: {error}"
            raise MustPartError(dict.fromkeys(crew.names, why)) from None

    def _noticing(self, worker: Supervisor, crew: _Crew) -> Runner:
        def whose(arm_name: str) -> str:
            variant, arm = crew.place(arm_name)
            return f"{self._request.sides[arm].label}: {variant}"

        return noticing(worker, whose, self.warnings)

    def _blame(self, crew: _Crew, failed: Mapping[str, Reason]) -> None:
        """Whoever fails in a process of its own has failed; beside others it may be these.

        A call that never returns is not tried again, since that takes minutes.
        """
        parted: dict[str, str] = {}
        for arm_name, reason in failed.items():
            variant, arm = crew.place(arm_name)
            message = f"{self._request.sides[arm].label}: {reason.message}"
            if crew.is_shared and reason.code is not ReasonCode.HUNG:
                parted[variant] = f"it failed beside the other revision ({message})"
            else:
                self.failures.setdefault((variant, None, None), message)
        if parted:
            raise MustPartError(parted)

    def _refuse_changes(self, crew: _Crew, outcome: RoundOutcome) -> None:
        """Refuses a shared process in which somebody has changed what all share."""
        if not crew.is_shared:
            return
        parted = {}
        for arm_name, changes in outcome.changes.items():
            if arm_name:
                variant, arm = crew.place(arm_name)
                label = self._request.sides[arm].label
                parted[variant] = f"{label} changes {', '.join(changes)} when it is imported"
        if since := outcome.changes.get(""):
            why = f"while it was measured, this changed: {', '.join(since)}"
            parted = dict.fromkeys(crew.names, why) | parted
        elif outcome.other_threads > MOST_OF_OTHER_THREADS:
            share = f"{100 * outcome.other_threads:.0f} %"
            why = f"while it was measured, other threads took {share} of the CPU time"
            parted = dict.fromkeys(crew.names, why) | parted
        if parted:
            raise MustPartError(parted)

    def _refuse_influence(self) -> None:
        """Refuses pairs where the base is slower, or faster, after the head than after itself."""
        parted = {}
        for subject, logs in self._influences.items():
            change = certain_influence(logs, len(self._influences))
            if change is not None:
                place = f"{subject.operation}/{subject.case}"
                parted[subject.variant] = (
                    f"{subject.metric} of the base in {place} differs by {change} after the head "
                    "has run from after its own copy"
                )
        if parted:
            raise MustPartError(parted)


def _num_workers(request: RoundsRequest, hello: Hello, *, shared: bool) -> int:
    """How many processes there may be at once, limited by cores and by memory."""
    spec = request.spec
    series = [metric.series for of in request.metrics.values() for metric in of]
    plan = round_plan(spec.plan, [one for one in series if one is not None], 0)
    needed = sum(case.parameters.num_bytes() for case in spec.cases)
    needed *= COPIES * plan.instances * len(request.variants)
    if shared:
        needed *= len(request.sides)
    on_gpu = hello.device == "cuda"
    rooms = [(available_bytes("cpu"), HOST_BYTES_OF_WORKER if on_gpu else 2**29 + needed)]
    if on_gpu:
        rooms.append((hello.available_bytes, DEVICE_BYTES_OF_WORKER + needed))
    fitting = min((room // each for room, each in rooms if room is not None), default=2)
    if fitting < 1:
        raise UsageError(
            f"a process-round would need {format_bytes(needed)} of memory for "
            f"{len(spec.cases)} cases with {len(request.variants)} variants, and that much is not "
            "available; leave cases out with -k, or variants with --variants"
        )
    cores = hello.environment.cpu_affinity or hello.environment.cpu_count or 1
    # A user who names a number may know of memory that the system does not show.
    return request.workers or min(MAX_WORKERS, max(2, 3 * cores // 2), fitting)


def header_of(
    request: RoundsRequest,
    environment: Environment,
    command: list[str],
    apart: Mapping[str, str] | None = None,
) -> Recording:
    """A recording of these process-rounds, still without rounds."""
    return Recording(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        tool=Tool(version=__version__, command=command),
        environment=environment,
        config=request.spec.name,
        suite=info_of(load_suite(request.spec.suite)),
        arms={
            arm: Revision(label=side.label, commit=side.commit, dirty=side.dirty)
            for arm, side in request.sides.items()
        },
        apart=dict(apart or {}),
        subjects=[],
        rounds=[],
    )


def record(
    request: RoundsRequest,
    rounds: int,
    path: Path,
    command: list[str],
    progress: Progress,
    is_time_up: Callable[[float], bool] = lambda _: False,
) -> Recording:
    """Checks the variants and records process-rounds of them.

    Args:
        request: what to measure.
        rounds: how many.
        path: of the recording, which is complete after every batch.
        command: the command line, for the record.
        progress: hears how far it is.
        is_time_up: given the seconds of the longest batch so far; whether to stop.

    Raises:
        UsageError: for a variant that fails, with the reason.
    """
    with checkers(request, progress) as workers:
        hello = workers.hello
        for failure in workers.failures(request.variants, progress).values():
            raise UsageError(failure)
        apart = workers.changing(progress)
    while True:
        try:
            return _recorded(request, rounds, path, command, progress, is_time_up, hello, apart)
        except MustPartError as error:
            apart |= error.reasons
            for name, why in error.reasons.items():
                progress.say(f"{name} is measured apart from here on: {why}")


def _recorded(
    request: RoundsRequest,
    rounds: int,
    path: Path,
    command: list[str],
    progress: Progress,
    is_time_up: Callable[[float], bool],
    hello: Hello,
    apart: Mapping[str, str],
) -> Recording:
    source = ProcessRounds(request, request.subjects, hello, progress, apart=apart)
    recorder = Recorder(path, header_of(request, hello.environment, command, apart))
    source.announce(rounds)
    done, longest = 0, 0.0
    while done < rounds and not is_time_up(longest):
        began = time.monotonic()
        taken = source.take_batch(rounds - done)
        recorder.add(taken)
        done += len(taken)
        for failure in source.failures.values():
            raise UsageError(failure)
        longest = max(longest, time.monotonic() - began)
    progress.say(f"{done} rounds timed")
    return recorder.recording
