"""Both sides of a gate: their variants, the subjects to compare, and checks of correctness."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from bt_bench.analysis import crash_text
from bt_bench.base.errors import UsageError
from bt_bench.base.names import DeviceChoice
from bt_bench.config import CaseSpec, SweepSpec
from bt_bench.protocol import Operation
from bt_bench.results import (
    Crash,
    Environment,
    GateArm,
    LaunchCensus,
    Method,
    Metric,
    Plan,
    ReasonCode,
    SeriesKey,
)
from bt_bench.runs.check import check_conformance
from bt_bench.runs.gate.wanted import round_plan
from bt_bench.runs.progress import Progress
from bt_bench.runs.sharing import at_once
from bt_bench.variants import Isolation, VariantEntry
from bt_bench.worker import (
    CheckCase,
    CountLaunches,
    Hello,
    Noticing,
    ReadChanges,
    Runner,
    Serve,
    Supervisor,
    WorkerError,
    WorkerSetup,
    arms_of,
)

Culprit = tuple[str, Operation | None, str | None]  # variant, operation, case; `None`: all


@dataclass(frozen=True)
class GateSide:
    """One revision and its variants.

    Args:
        label: its name in reports.
        entries: variant files, with the same names on both sides.
        commit: the commit, if there is one.
        dirty: whether files differ from the commit.
        isolation: which files of the repository its processes may use; `None`: any.
        named: adds the revision to a message about its files.
    """

    label: str
    entries: tuple[VariantEntry, ...]
    commit: str | None = None
    dirty: bool | None = None
    isolation: Isolation | None = None
    named: Callable[[str], str] = field(default=lambda text: text, compare=False)

    @property
    def names(self) -> list[str]:
        """Names of the variants."""
        return [entry.name for entry in self.entries]


@dataclass(frozen=True)
class RoundsRequest:
    """The subjects and settings of process-rounds.

    Args:
        spec: cases and plan.
        sides: the revision of each arm; the control has the base's.
        metrics: the metrics of each operation; rounds do not take those that are counted.
        device: where to measure.
        serve: main function of workers.
        workers: number of processes at once; `None`: by cores and memory.
        on_traceback: takes the traceback of each failure of a variant; `None`: none are sent.
        others: further devices that measure at once, each of them whole rounds.
    """

    spec: SweepSpec
    sides: Mapping[GateArm, GateSide]
    metrics: Mapping[Operation, tuple[Metric, ...]]
    device: DeviceChoice
    serve: Serve
    workers: int | None = None
    on_traceback: Callable[[str], None] | None = None
    others: tuple[DeviceChoice, ...] = ()

    def __post_init__(self) -> None:
        """Refuse metrics that nothing takes, and devices without a process.

        Raises:
            UsageError: if the plan profiles nothing, and a metric is by the profiler, or if there
                are fewer processes than devices.
        """
        if self.workers is not None and self.workers < len(self.devices):
            raise UsageError(
                f"--workers {self.workers}: there are {len(self.devices)} devices; expected as "
                "many or more"
            )
        if self.spec.plan.profile_rounds:
            return
        for metrics in self.metrics.values():
            for metric in metrics:
                if metric.series is not None and metric.series.method is Method.PROFILER:
                    raise UsageError(
                        f"plan.profile_rounds is 0, so {metric.name} cannot be compared; "
                        "expected 1 or more, or other metrics by --metric, such as host_us"
                    )

    @property
    def devices(self) -> tuple[DeviceChoice, ...]:
        """All devices."""
        return (self.device, *self.others)

    @property
    def variants(self) -> list[str]:
        """Names of the variants."""
        return self.sides[GateArm.BASE].names

    @property
    def subjects(self) -> list[SeriesKey]:
        """All subjects that could be timed."""
        return self.subjects_of(self.variants, timed=True)

    def subjects_of(self, variants: Sequence[str], *, timed: bool = False) -> list[SeriesKey]:
        """Return the subjects of variants, or only those that are timed, not counted."""
        return [
            SeriesKey(operation, case.name, variant, metric.name)
            for case in self.spec.cases
            for operation, metrics in self.metrics.items()
            for variant in variants
            for metric in metrics
            if not (timed and metric.exact)
        ]

    def plan(self, seed: int = 0) -> Plan:
        """Return the plan of a process-round with a seed; it has the wanted conditions alone."""
        metrics = chain.from_iterable(self.metrics.values())
        series = [metric.series for metric in metrics if metric.series is not None]
        return round_plan(self.spec.plan, series, seed)

    @property
    def counted(self) -> tuple[Operation, ...]:
        """Operations whose launches are counted while the variants are checked."""
        return tuple(op for op, metrics in self.metrics.items() if any(m.exact for m in metrics))


class Checkers:
    """Checks of variants before any timing, with a worker for each revision; see `checkers`.

    Revisions that have a device each are checked at once.

    Args:
        request: the process-rounds.
        workers: the workers, with their revisions.
        hellos: the greetings of a worker on each device.
        pool: has a thread for each worker, until all of them have ended: a worker that is replaced
            there ends with its thread.

    Attributes:
        lacking: per checked variant and case, the revisions that cannot run it, and why.
        launches: per variant, operation and case, the launches of each revision, where counted.
        warnings: crashes that did not happen again.
    """

    def __init__(
        self,
        request: RoundsRequest,
        workers: Sequence[tuple[GateSide, Supervisor]],
        hellos: Sequence[Hello],
        pool: ThreadPoolExecutor,
    ) -> None:
        self._spec = request.spec
        self._counted = request.counted
        self._workers = workers
        self._hellos = hellos
        self._pool = pool
        self._devices = request.devices
        self.lacking: dict[tuple[str, str], dict[str, str]] = {}
        self.launches: dict[tuple[str, Operation, str], dict[str, LaunchCensus]] = {}
        self.warnings: list[str] = []

    @property
    def hello(self) -> Hello:
        """Device and environment that the first worker found, and the memory of each device."""
        rooms = [hello.available_bytes for hello in self._hellos]
        least = min((room for room in rooms if room is not None), default=None)
        return replace(self._hellos[0], available_bytes=least)

    @property
    def environments(self) -> list[Environment]:
        """Environments of all devices."""
        return [hello.environment for hello in self._hellos]

    def failures(self, variants: Sequence[str], progress: Progress) -> dict[Culprit, str]:
        """Check variants of both revisions, once, against the installed reference.

        Returns:
            The failures, with the revision and the reason.

        Raises:
            WorkerError: if a device is lost, naming it.
        """
        wrong: dict[int, dict[Culprit, str]] = {}

        def check(place: int, side: GateSide, worker: Supervisor) -> None:
            progress.phase(f"checking {side.label}")
            watched = noticing(worker, lambda arm: f"{side.label}: {arm}", self.warnings)
            wrong[place] = self._wrong(side, variants, watched)

        def is_lost(place: int, error: WorkerError) -> None:
            device = self._devices[place]
            raise WorkerError(f"device {place + 1} ({device}), which checks: {error}") from error

        checks = {
            place: partial(check, place, side, worker)
            for place, (side, worker) in enumerate(self._workers)
        }
        if not variants:
            return {}
        if len(self._hellos) == 1:
            for each in checks.values():
                each()
        else:
            at_once(self._pool, checks, is_lost, [worker for _, worker in self._workers])
        failures: dict[Culprit, str] = {}
        for place in checks:
            failures = wrong[place] | failures
        return failures

    def changing(self, progress: Progress) -> dict[str, str]:
        """Return the variants that change state of a whole process, and how; after `failures`."""
        reasons: dict[str, str] = {}
        for side, worker in self._workers:
            progress.phase(f"looking for changes that {side.label} makes to the process")
            for name, changes in worker.run(ReadChanges(), []).value.items():
                what = f"{side.label} changes {', '.join(changes)}"
                if name:
                    reasons.setdefault(name, f"{what} when it is imported")
                else:
                    why = f"{what} while it runs, and it is not known which variant does"
                    reasons = dict.fromkeys(side.names, why) | reasons
        return reasons

    def _wrong(self, side: GateSide, variants: Sequence[str], worker: Runner) -> dict[Culprit, str]:
        spec = self._spec
        failures: dict[Culprit, str] = {}
        for outcome in check_conformance(worker, spec, variants):
            if outcome.failure is not None:
                message = outcome.failure.message.removeprefix(f"{outcome.workload}, ")
                what = f"{side.label}: {outcome.workload}: {message}"
                failures.setdefault((outcome.variant, None, None), what)
        right = [name for name in variants if (name, None, None) not in failures]
        for case in spec.cases:
            finished = worker.run(CheckCase(case, tuple(spec.operations)), right)
            for name, reason in finished.failed.items():
                failures[name, None, case.name] = f"{side.label}: {reason.message}"
            for (name, operation), outcome_of in finished.value.outcomes.items():
                why = outcome_of.reason
                if why is not None and why.code is ReasonCode.UNSUPPORTED:
                    self.lacking.setdefault((name, case.name), {})[side.label] = why.message
                elif why is not None:
                    failures[name, operation, case.name] = f"{side.label}: {why.message}"
            if self._counted:
                able = [name for name in right if (name, case.name) not in self.lacking]
                failures |= self._count(side, case, able, worker)
        return failures

    def _count(
        self, side: GateSide, case: CaseSpec, variants: Sequence[str], worker: Runner
    ) -> dict[Culprit, str]:
        """Count launches, and return the failures of doing so."""
        finished = worker.run(CountLaunches(case, self._counted), variants)
        for (name, operation), census in finished.value.items():
            of_sides = self.launches.setdefault((name, operation, case.name), {})
            of_sides[side.label] = census
        return {
            (name, None, case.name): f"{side.label}: {reason.message}"
            for name, reason in finished.failed.items()
        }


@contextmanager
def checkers(
    request: RoundsRequest, progress: Progress, *, equal: bool = False
) -> Iterator[Checkers]:
    """Start workers that have imported all variants; they end with the block.

    Args:
        request: the process-rounds.
        progress: receives the progress.
        equal: whether both sides have equal files; then it is enough to import one of them.

    Raises:
        UsageError: for a device that is not there, and for a variant file that does not import,
            naming the revision.
    """
    base, head = request.sides[GateArm.BASE], request.sides[GateArm.HEAD]
    with ExitStack() as stack:
        progress.phase("importing the variants")
        workers = []
        devices = request.devices
        sides = [head] if equal or head == base else [base, head]
        pool = stack.enter_context(ThreadPoolExecutor(len(sides)))  # outlives the workers
        for place, side in enumerate(sides):
            # Nothing is timed here, so there is time to check every file that a variant opens.
            isolation = None if equal else side.isolation
            audited = None if isolation is None else replace(isolation, audited=True)
            setup = WorkerSetup(
                devices[place % len(devices)],
                arms_of(side.entries, audited),
                request.spec.plan,
                suite=request.spec.suite,
                watched=True,
            )
            workers.append((side, started(stack, setup, request)))
        rest = [
            started(stack, WorkerSetup(device, (), request.spec.plan, request.spec.suite), request)
            for device in devices[len(sides) :]
        ]
        for side, worker in workers:
            greet(worker, side)
        for worker in rest:
            greet(worker)
        first = [worker for _, worker in workers][: len(devices)]
        yield Checkers(request, workers, [worker.hello for worker in (*first, *rest)], pool)


def noticing(worker: Runner, whose: Callable[[str], str], warnings: list[str]) -> Runner:
    """Return a runner that adds a warning for each crash that does not recur.

    Args:
        worker: runs the tasks.
        whose: takes the name of an arm, and returns its revision and variant, in words.
        warnings: collects the warnings.
    """

    def tell(arms: Sequence[str], crash: Crash) -> None:
        culprit = f"{whose(arms[0])}, " if crash.known else ""
        warnings.append(f"{culprit}{crash_text(crash)}")

    return Noticing(worker, tell)


def started(stack: ExitStack, setup: WorkerSetup, request: RoundsRequest) -> Supervisor:
    """Start a worker of a request, which ends when the stack is left."""
    worker = Supervisor(setup, request.serve, request.on_traceback)
    stack.callback(worker.close)
    worker.start()
    return worker


def greet(worker: Supervisor, *sides: GateSide) -> None:
    """Wait for a worker's start; an error in a variant file names the revision."""
    try:
        worker.__enter__()
    except UsageError as error:
        for side in sides:
            if any(str(entry.path) in str(error) for entry in side.entries):
                raise UsageError(side.named(str(error))) from None
        raise  # about the device
