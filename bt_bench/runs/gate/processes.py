"""Process-rounds: every round is measured by a process of its own, all arms in it side by side.

The processes of several rounds are started and set up together, which takes seconds. Then they are
timed one at a time, while the others wait. If a variant must not or cannot share a process, each of
its arms has a process of its own instead: the variant is measured apart.

With several devices, each round is measured on one of them, by all of its processes. Processes on
different devices are timed at once, and take turns at timing the host.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import permutations
from threading import Lock

from bt_bench.analysis import certain_influence, largest_ticks
from bt_bench.base import one_line
from bt_bench.base.errors import BtBenchError, UsageError
from bt_bench.base.names import resolved
from bt_bench.results import (
    GateArm,
    GateRound,
    Reason,
    ReasonCode,
    SeriesKey,
    metric_of,
)
from bt_bench.runs.gate.capacity import num_workers
from bt_bench.runs.gate.crews import Crew, LostDevice, Seat, Taking, Values, arm_name, whole
from bt_bench.runs.gate.sides import (
    Culprit,
    RoundsRequest,
    greet,
    noticing,
    started,
)
from bt_bench.runs.progress import News, Progress
from bt_bench.runs.sharing import at_once
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
    Supervisor,
    Task,
    WorkerError,
    WorkerSetup,
)

# Copies of the same code differ in speed, each for as long as its process lives: by 0.4 % (the
# standard deviation) in what Python alone does, and by 0.4 to 1 % in `host_us` on an H200's host.
CODE_COPIES = 4
MOST_OF_OTHER_THREADS = 0.2  # of the CPU time; libraries of CUDA take next to none


class MustPartError(BtBenchError):
    """Some variants cannot be measured in one process; the rounds so far are worth nothing.

    Args:
        reasons: a clause for each variant.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {why}" for name, why in reasons.items()))
        self.reasons = dict(reasons)


class ProcessRounds:
    """A `RoundSource` that measures its rounds on demand.

    A variant that fails in a process of its own (twice, for a crash) is added to `failures` and
    takes no part in later rounds. A crash that does not happen again is only described in
    `warnings`.

    Args:
        request: the process-rounds.
        subjects: the subjects to time.
        hello: device and memory, as an earlier worker found them.
        progress: receives the progress.
        on_batch: called with the rounds of each batch of workers as soon as they are measured; if
            the user breaks off, with those that are whole.
        apart: variants that get a process for each arm, and why.
        before: the source whose rounds are taken anew; its failures are not tried again.

    Attributes:
        devices: numbers of the devices that have taken whole rounds.
        lost: by number of a device that was given up: why, and how many of its rounds are measured
            anew on others.

    Raises:
        UsageError: if not even one worker fits into memory.
    """

    def __init__(
        self,
        request: RoundsRequest,
        subjects: Sequence[SeriesKey],
        hello: Hello,
        progress: Progress,
        on_batch: Callable[[list[GateRound]], None] = lambda _: None,
        apart: Mapping[str, str] | None = None,
        before: ProcessRounds | None = None,
    ) -> None:
        self._on_batch = on_batch
        first, *others = (resolved(device, hello.device) for device in request.devices)
        self._request = replace(request, device=first, others=tuple(others))
        lost = {} if before is None else before.lost
        self.lost: dict[int, LostDevice] = {at: LostDevice(each.why) for at, each in lost.items()}
        devices = range(len(self._request.devices))
        self._left = [place for place in devices if place not in self.lost]
        self._lock = Lock()  # for the numbers of processes
        self._subjects = set(subjects)
        self._progress = progress
        self._names = [n for n in request.variants if any(s.variant == n for s in subjects)]
        self._apart = frozenset(apart or ())
        self._rng = random.Random(0)  # a gate that is repeated has the same orders
        self._orders: list[tuple[GateArm, ...]] = []  # of the rounds to come, the last one first
        self._begun = 0  # rounds
        self._influences: dict[SeriesKey, list[float]] = {}
        # Processes: with strangers on the GPU, stopped by a CPU quota, and in all.
        self._visited = self._stopped = self._timed = 0
        self.devices: set[int] = set()
        # The memory of the devices that are left has no room for the processes of others.
        num = num_workers(request, hello, shared=bool(set(self._names) - self._apart))
        self.workers = num * len(self._left) // len(devices)
        self.failures: dict[Culprit, str] = {} if before is None else before.failures
        self.warnings: list[str] = [] if before is None else before.warnings
        self._names = [name for name in self._names if (name, None, None) not in self.failures]

    def take(self, count: int) -> list[GateRound]:
        """Return the next rounds; fewer if no variant is left to measure.

        Raises:
            MustPartError: if variants turn out to need processes of their own.
            WorkerError: if no device is left; `on_batch` had the rounds that were whole.
        """
        taken: list[GateRound] = []
        self.announce(count)
        while len(taken) < count and self._names:
            taken += self.take_batch(count - len(taken))
        return taken

    def disturbances(self) -> list[str]:
        """Return the disturbances seen on the machine, a clause each."""
        return [
            f"{what} {count} of {self._timed} processes of it"
            for count, what in (
                (self._visited, "processes that are not the gate's were on the GPU in"),
                (self._stopped, "the container's CPU quota stopped"),
            )
            if count
        ]

    def stop_warnings(self) -> list[str]:
        """Return a warning if a CPU quota has stopped processes while they measured."""
        if not self._stopped:
            return []
        return [
            f"the container's CPU quota stopped {self._stopped} of {self._timed} processes while "
            "they measured; rounds in which it did were discarded. Give it a larger quota, or "
            "fewer --workers"
        ]

    def announce(self, rounds: int) -> None:
        """Announce how many rounds are to come."""
        self._progress.start(rounds * self._num_crews, unit="processes")

    def take_batch(self, most: int) -> list[GateRound]:
        """Return the next rounds whose workers can all exist at once; at most `most`.

        Rounds of a device that is lost are left out.

        Raises:
            MustPartError: as `take`.
        """
        num_rounds = min(most, max(1, self.workers // self._num_crews))
        num_rounds -= num_rounds % len(self._left) if num_rounds > len(self._left) else 0
        taken = [self._next_taking() for _ in range(num_rounds)]
        try:
            self._time(taken)
        except (KeyboardInterrupt, WorkerError):
            self._on_batch(whole(taken))
            raise
        self._names = [name for name in self._names if (name, None, None) not in self.failures]
        self._refuse_influence()
        for taking in taken:
            if taking.left:  # of a device that was lost
                self._orders.append(taking.order)
                self.lost[taking.place].rounds += 1
        batch = whole(taken)
        self.devices |= {each.device for each in batch}
        self._on_batch(batch)
        return batch

    def _time(self, batch: Sequence[Taking]) -> None:
        """Let all processes of some rounds measure, those of one device one by one."""
        with ExitStack() as stack:
            self._progress.phase(
                f"setting up {sum(len(taking.crews) for taking in batch)} processes"
            )
            seats = [
                Seat(taking, crew, self._start(stack, crew, taking.place))
                for taking in batch
                for crew in taking.crews
            ]
            for seat in seats:
                self._seat(seat)
            self._progress.phase("timing")
            self._on_each_device(seats)
            for seat in seats:
                seat.worker.abandon()  # all at once, since each takes a while to end

    def _seat(self, seat: Seat) -> None:
        """Wait until a process is ready, unless its device is lost meanwhile."""
        if seat.taking.place in self._left:
            try:
                seat.names = self._set_up(seat.worker, seat.crew)
            except WorkerError as error:
                self._lose(seat.taking.place, error)

    def _on_each_device(self, seats: Sequence[Seat]) -> None:
        """Time processes: all devices at once, if there are several."""
        works = {
            place: partial(self._time_all, [seat for seat in seats if seat.taking.place == place])
            for place in self._left
        }
        if len(works) == 1:
            for work in works.values():
                work()
            return
        with ThreadPoolExecutor(len(works)) as pool:
            at_once(pool, works, self._lose, [seat.worker for seat in seats])

    def _time_all(self, seats: Sequence[Seat]) -> None:
        """Time the processes of one device, one by one."""
        for seat in seats:
            taking = seat.taking
            if seat.names:
                outcome = self._measure(seat.worker, seat.crew, seat.names)
                with self._lock:
                    self._timed += 1
                    self._visited += (outcome.gpu_processes or 0) > len(seats)
                    self._stopped += outcome.stops > 0
                    for arm, found in self._values(seat.crew, outcome).items():
                        taking.values.setdefault(arm, {}).update(found)
                taking.ticks = largest_ticks([taking.ticks, outcome.ticks])
            taking.left -= 1
            self._progress.advance()

    def _lose(self, place: int, error: WorkerError) -> None:
        """Give a device up; its rounds are measured anew on the others.

        Raises:
            WorkerError: if there are none.
        """
        self.workers = self.workers * (len(self._left) - 1) // len(self._left)
        self._left.remove(place)
        if not self._left:
            raise error
        device = f"device {place + 1} ({self._request.devices[place]})"
        why = one_line(str(error))
        self.lost[place] = LostDevice(why)
        self._progress.say(f"{device} is given up: {why}; its rounds are measured anew")

    @property
    def _num_crews(self) -> int:
        """Return how many processes a round takes; 1 if no variant is left."""
        apart = self._apart.intersection(self._names)
        shared = len(self._names) > len(apart)
        return max(1, shared + bool(apart) * len(self._request.sides))

    def _next_order(self) -> tuple[GateArm, ...]:
        """Return the next order of import; among six rounds, each order of three arms once.

        An arm that is imported first is faster, by some 5 % of a microsecond's staging on a CPU,
        for as long as the process lives.
        """
        if not self._orders:
            self._orders = list(permutations(self._request.sides))
            self._rng.shuffle(self._orders)
        return self._orders.pop()

    def _next_taking(self) -> Taking:
        """Return a round on the next device, also where a batch has fewer rounds than devices."""
        order = self._next_order()
        crews = self._crews(order)
        self._begun += 1
        place = self._left[(self._begun - 1) % len(self._left)]
        return Taking(order, crews, place, len(crews))

    def _crews(self, arms: tuple[GateArm, ...]) -> list[Crew]:
        """Return the processes of a round in random order, with an order of import."""
        together = tuple(name for name in self._names if name not in self._apart)
        alone = tuple(name for name in self._names if name in self._apart)
        crews = [Crew(arms, together)] if together else []
        crews += [Crew((arm,), alone) for arm in arms if alone]
        return self._rng.sample(crews, len(crews))

    def _start(self, stack: ExitStack, crew: Crew, place: int) -> Supervisor:
        request = self._request
        plan = request.plan(self._rng.randrange(2**31))
        ahead = Ahead(PrepareRound(self._units(crew)), tuple(crew.arm_names))
        arms = tuple(
            ArmSetup(arm_name(entry.name, arm), entry, arm.value, request.sides[arm].isolation)
            for arm in crew.arms
            for entry in request.sides[arm].entries
            if entry.name in crew.names
        )
        setup = WorkerSetup(
            request.devices[place],
            arms,
            plan,
            request.spec.suite,
            ahead,
            watched=crew.is_shared,
            copies=min(CODE_COPIES, plan.instances) if crew.is_shared else 1,
            takes_turns=len(request.devices) > 1,
        )
        return started(stack, setup, request)

    def _units(self, crew: Crew) -> tuple[RoundUnit, ...]:
        """Return the units to time: per case and operation, the arms and series of the subjects."""
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

    def _set_up(self, worker: Supervisor, crew: Crew) -> list[str]:
        """Wait until a worker is ready; return the arms that are set up."""
        try:
            greet(worker, *(self._request.sides[arm] for arm in crew.arms))
        except UsageError as error:
            culprits = [name for name in crew.names if f"/{name}.py" in str(error)]
            if not culprits and len(self._left) > 1:  # the GPU may have fallen off
                raise WorkerError(str(error)) from error
            if not culprits:
                raise
            if not crew.is_shared:
                for name in culprits:
                    self.failures.setdefault((name, None, None), str(error))
                return []
            # The checks have imported it, once and alone.
            why = (
                "it cannot be imported as often as a gate does, which has several copies of both "
                f"revisions in one process: {error}"
            )
            raise MustPartError(dict.fromkeys(culprits, why)) from None
        names = crew.arm_names
        finished = self._run(worker, crew, PrepareRound(self._units(crew)), names)
        return [name for name in names if name not in finished.failed]

    def _measure(self, worker: Supervisor, crew: Crew, names: Sequence[str]) -> RoundOutcome:
        outcome = self._run(worker, crew, MeasureRound(self._units(crew)), names).value
        self._refuse_changes(crew, outcome)
        return outcome

    def _values(self, crew: Crew, outcome: RoundOutcome) -> Values:
        values: Values = {}
        for found in outcome.values:
            variant, arm = crew.place(found.variant)
            subject = SeriesKey(found.operation, found.case, variant, metric_of(found.series).name)
            if subject in self._subjects:
                values.setdefault(arm, {})[subject] = found.value
                if found.influence is not None and arm is not GateArm.HEAD:
                    self._influences.setdefault(subject, []).append(found.influence)
        return values

    def _run(
        self, worker: Supervisor, crew: Crew, task: Task[ResultT], names: Sequence[str]
    ) -> Finished[ResultT]:
        """Run a task, and record failures.

        A task that is refused in a shared process may succeed in its own process.
        """

        def whose(arm_name: str) -> str:
            variant, arm = crew.place(arm_name)
            return f"{self._request.sides[arm].label}: {variant}"

        try:
            runner = noticing(worker, whose, self.warnings)
            finished = runner.run(task, names, News(self._progress.say))
        except UsageError as error:
            if not crew.is_shared:
                raise
            why = f"it was refused beside the other revision: {error}"
            raise MustPartError(dict.fromkeys(crew.names, why)) from None
        self._blame(crew, finished.failed)
        return finished

    def _blame(self, crew: Crew, failed: Mapping[str, Reason]) -> None:
        """Record failures; a variant that fails beside others must be measured apart.

        Beside others, these may be the cause. A call that never returns is not tried again, since
        that takes minutes.
        """
        parted: dict[str, str] = {}
        for name, reason in failed.items():
            variant, arm = crew.place(name)
            message = f"{self._request.sides[arm].label}: {reason.message}"
            if crew.is_shared and reason.code is not ReasonCode.HUNG:
                parted[variant] = f"it failed beside the other revision ({message})"
            else:
                self.failures.setdefault((variant, None, None), message)
        if parted:
            raise MustPartError(parted)

    def _refuse_changes(self, crew: Crew, outcome: RoundOutcome) -> None:
        """Refuse a shared process if shared state has changed, or other threads were busy."""
        if not crew.is_shared:
            return
        parted = {}
        for name, changes in outcome.changes.items():
            if name:
                variant, arm = crew.place(name)
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
        """Refuse pairs with a base that is slower, or faster, after the head than after itself."""
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
