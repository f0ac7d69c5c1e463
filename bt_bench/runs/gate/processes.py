"""Process-rounds: every arm of every round is measured by a process of its own.

The workers of several rounds are started and set up together, which takes seconds. Then they are
timed one at a time, in the random order of their rounds, while the others wait.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bt_bench import __version__
from bt_bench.errors import UsageError
from bt_bench.protocol import info_of, load_suite
from bt_bench.results import (
    Environment,
    GateArm,
    GateRound,
    Reason,
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
    Hello,
    MeasureRound,
    PrepareRound,
    RoundUnit,
    Runner,
    Supervisor,
    WorkerSetup,
    available_bytes,
)

MAX_WORKERS = 24
HOST_BYTES_OF_WORKER = 3 * 2**30  # torch, CUDA's libraries and a context's host side
DEVICE_BYTES_OF_WORKER = 2**30  # a context, and the smallest blocks of torch's allocator
COPIES = 2  # the tensors of a variant, and a copy from before the first step
SEEDS_PER_ROUND = len(GateArm)


class ProcessRounds:
    """A `RoundSource` whose rounds are measured when they are asked for.

    A variant that raises, hangs or crashes in a process-round (twice, for a crash) is added to
    `failures` and takes no part in later rounds. A crash that does not happen again is only
    described in `warnings`.

    Args:
        request: what to measure.
        subjects: which of its subjects.
        hello: device and memory, as an earlier worker found them.
        progress: is told how far it is.
        on_batch: is given the rounds of each batch of workers as soon as they are measured.

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
    ) -> None:
        self._on_batch = on_batch
        self._request = replace(request, device=hello.device)
        self._subjects = set(subjects)
        self._progress = progress
        self._units = _units(request, self._subjects)
        self._names = [n for n in request.variants if any(s.variant == n for s in subjects)]
        self._rng = random.Random(request.seed)
        self._rounds = 0
        self.workers = _num_workers(request, hello)
        self.failures: dict[Culprit, str] = {}
        self.warnings: list[str] = []

    def take(self, count: int) -> list[GateRound]:
        """The next rounds; fewer where no variant is left to measure."""
        taken: list[GateRound] = []
        self.announce(count)
        while len(taken) < count and self._names:
            batch = self.take_batch(count - len(taken))
            self._on_batch(batch)
            taken += batch
        return taken

    def announce(self, rounds: int) -> None:
        """Tells whoever watches how many rounds are to come."""
        self._progress.start(rounds * len(self._request.sides), unit="processes")

    def take_batch(self, most: int) -> list[GateRound]:
        """The next rounds whose workers can all exist at once; not more than `most`."""
        arms = list(self._request.sides)
        num_rounds = min(most, max(1, self.workers // len(arms)))
        orders = [tuple(self._rng.sample(arms, len(arms))) for _ in range(num_rounds)]
        values: list[dict[GateArm, dict[Subject, float]]] = [{} for _ in orders]
        with ExitStack() as stack:
            self._progress.phase(f"setting up {num_rounds * len(arms)} processes")
            workers = [
                (index, arm, self._start(stack, arm)) for index, o in enumerate(orders) for arm in o
            ]
            ready = [self._set_up(worker, arm) for _, arm, worker in workers]
            self._progress.phase("timing")
            for (index, arm, worker), names in zip(workers, ready, strict=True):
                values[index][arm] = self._measure(worker, arm, names)
                self._progress.advance()
            for _, _, worker in workers:
                worker.abandon()  # all at once, since each takes a while to end
        self._names = [name for name in self._names if (name, None, None) not in self.failures]
        return [GateRound(order, of) for order, of in zip(orders, values, strict=True)]

    def _start(self, stack: ExitStack, arm: GateArm) -> Supervisor:
        request = self._request
        series = [metric.series for metrics in request.metrics.values() for metric in metrics]
        plan = round_plan(
            request.spec.plan,
            [one for one in series if one is not None],
            request.seed + SEEDS_PER_ROUND * self._rounds + list(GateArm).index(arm),
        )
        self._rounds += 1
        ahead = Ahead(PrepareRound(self._units), tuple(self._names))
        side = request.sides[arm]
        entries = tuple(entry for entry in side.entries if entry.name in self._names)
        setup = WorkerSetup(
            request.device, entries, plan, request.spec.suite, ahead, side.isolation
        )
        return started(stack, setup, request.serve)

    def _set_up(self, worker: Supervisor, arm: GateArm) -> list[str]:
        """Waits until a worker is ready; returns the variants that are set up."""
        greet(worker, self._request.sides[arm])
        finished = self._noticing(worker, arm).run(PrepareRound(self._units), self._names)
        self._blame(arm, finished.failed)
        return [name for name in self._names if name not in finished.failed]

    def _measure(
        self, worker: Supervisor, arm: GateArm, names: Sequence[str]
    ) -> dict[Subject, float]:
        finished = self._noticing(worker, arm).run(MeasureRound(self._units), names)
        self._blame(arm, finished.failed)
        found = {
            Subject(v.operation, v.case, v.variant, metric_of(v.series).name): v.value
            for v in finished.value
        }
        return {subject: value for subject, value in found.items() if subject in self._subjects}

    def _noticing(self, worker: Supervisor, arm: GateArm) -> Runner:
        return noticing(worker, self._request.sides[arm], self.warnings)

    def _blame(self, arm: GateArm, failed: Mapping[str, Reason]) -> None:
        label = self._request.sides[arm].label
        for name, reason in failed.items():
            self.failures.setdefault((name, None, None), f"{label}: {reason.message}")


def _units(request: RoundsRequest, subjects: set[Subject]) -> tuple[RoundUnit, ...]:
    """What is timed: per case and operation, the variants and series of the subjects."""
    units = []
    for case in request.spec.cases:
        for operation, metrics in request.metrics.items():
            of_unit = [s for s in subjects if (s.case, s.operation) == (case.name, operation)]
            names = {subject.metric for subject in of_unit}
            variants = {subject.variant for subject in of_unit}
            series = tuple(m.series for m in metrics if m.name in names and m.series is not None)
            if series:
                ordered = tuple(name for name in request.variants if name in variants)
                units.append(RoundUnit(case, operation, series, ordered))
    return tuple(units)


def _num_workers(request: RoundsRequest, hello: Hello) -> int:
    """How many processes there may be at once, limited by cores and by memory."""
    spec = request.spec
    plan = round_plan(spec.plan, [], 0)
    needed = sum(case.parameters.num_bytes() for case in spec.cases)
    needed *= COPIES * plan.instances * len(request.variants)
    on_gpu = hello.device == "cuda"
    rooms = [(available_bytes("cpu"), HOST_BYTES_OF_WORKER if on_gpu else 2**29 + needed)]
    if on_gpu:
        rooms.append((hello.available_bytes, DEVICE_BYTES_OF_WORKER + needed))
    fitting = min((room // each for room, each in rooms if room is not None), default=3)
    if fitting < 1:
        raise UsageError(
            f"a process-round would need {format_bytes(needed)} of memory for "
            f"{len(spec.cases)} cases with {len(request.variants)} variants, and that much is not "
            "available; leave cases out with -k, or variants with --variants"
        )
    cores = hello.environment.cpu_affinity or hello.environment.cpu_count or 1
    # A user who names a number may know of memory that the system does not show.
    return request.workers or min(MAX_WORKERS, max(3, 3 * cores // 2), fitting)


def header_of(request: RoundsRequest, environment: Environment, command: list[str]) -> Recording:
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
    source = ProcessRounds(request, request.subjects, hello, progress)
    recorder = Recorder(path, header_of(request, hello.environment, command))
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
    progress.say(f"{done * len(request.sides)} process-rounds timed")
    return recorder.recording
