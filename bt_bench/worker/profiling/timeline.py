"""The steps of a timeline: one step of a case, run over and over, traced and not traced.

The steps are timed by the same region as in a sweep. Traced and untraced passes of some hundred
milliseconds take turns: within seconds, a machine may change its speed by more than tracing adds.
During untraced passes no profiler is attached to the process. All variants are interleaved in each
pass. Empty calls beside them show the cost of tracing.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from bt_bench.analysis import median
from bt_bench.base import no_collection
from bt_bench.protocol import Workload
from bt_bench.results import (
    EmptyCalls,
    HostCall,
    HostProfile,
    LaunchPath,
    Plan,
    Reason,
    ReasonCode,
    TracedSteps,
    Tracing,
)
from bt_bench.worker.measuring.bench import Bench
from bt_bench.worker.measuring.case import build_instances
from bt_bench.worker.measuring.device_kernels import direct_null
from bt_bench.worker.measuring.launch_paths import use
from bt_bench.worker.measuring.nvtx_ranges import SampleRanges, range_name
from bt_bench.worker.measuring.ports import Call, Clock, CudaPort, DevicePort
from bt_bench.worker.measuring.regions import host_times
from bt_bench.worker.measuring.rounds import ReplayWindow, Turn, Turns
from bt_bench.worker.measuring.timing import rewind
from bt_bench.worker.profiling.host_calls import trace_host
from bt_bench.worker.profiling.steps import InOrder, Ran, RecordsLostError, traced_steps
from bt_bench.worker.profiling.tracers import Tracer, tracer
from bt_bench.worker.tasks.arm import Arm, inputs_on
from bt_bench.worker.tasks.outcome import OnRound, RoundProgress, TimelineParts
from bt_bench.worker.tasks.tasks import TakeTimeline

SECONDS = 3.0  # no turn begins after this time, once there are LEAST_TURNS
LEAST_TURNS = 4
# Of rounds in a turn, for traced and untraced ones each. There are many short turns, since a shared
# machine changes its speed from one pass to the next, by up to a factor of two.
PAIRS = 5
MOST_STEPS = 400  # per variant, traced and untraced each; it bounds the size of the file
WARM_UP_ROUNDS = 6
# The first rounds after a profiler was attached or detached are slower, and are not kept.
CHANGED_ROUNDS = 3
ATTEMPTS = 3
QUERIES = 6  # long enough to time
# Read between two queries, a byte of each cache line: in a step, too, calls of CUDA do not find
# each other's data in the nearest cache.
_BETWEEN = bytes(48 << 10)
_LINE_BYTES = 64

EmptyName = Literal["launch", "query"]


def take_timeline(
    task: TakeTimeline,
    variants: Mapping[str, type[Any]],
    workload: Workload,
    plan: Plan,
    bench: Bench,
    on_round: OnRound,
    *,
    port: DevicePort | None = None,
    tracer_of: Callable[[], Tracer] = tracer,
) -> TimelineParts:
    """Run one step of a window under each kind of tracing.

    Args:
        task: the case, the operation and the step.
        variants: the variants by name.
        workload: the workload of the case.
        plan: the number of instances and the seed.
        bench: the device of the variants' tensors, and the host's clock.
        on_round: receives progress.
        port: the device; by default the current one.
        tracer_of: loads a profiler; called after the warm-up and the host profiles.

    Raises:
        ArmFailedError: if a variant raises an exception.
    """
    copies = {name: (variant,) for name, variant in variants.items()}
    instances = build_instances(copies, workload, plan, bench.device)
    steps = inputs_on(bench.device, workload)[: task.step + 1]
    window = ReplayWindow(task.case.name, instances, steps, task.operation)
    passes = _Passes(window, plan, bench.around.clock, port or CudaPort(), on_round)
    return passes.take(tracer_of)


class _Passes:
    """All passes of a timeline."""

    def __init__(
        self, window: ReplayWindow, plan: Plan, clock: Clock, port: DevicePort, on_round: OnRound
    ) -> None:
        self._window = window
        self._clock = clock
        self._port = port
        self._on_round = on_round
        self._turn = 0
        self._previous = Tracing.ALL  # making a tracer attaches it once
        self._turns = Turns(window, random.Random(plan.seed))
        of_window = window.operation, window.case
        self._ranges = {name: SampleRanges(name, *of_window) for name in window.names}
        self._empty: dict[EmptyName, Call] = {
            "launch": direct_null(),
            "query": partial(_repeated, port.start_has_passed, QUERIES),
        }

    def take(self, tracer_of: Callable[[], Tracer]) -> TimelineParts:
        started_ns = self._clock.now_ns()
        with no_collection():
            self._port.record_start()  # the empty calls query it
            for _ in range(WARM_UP_ROUNDS):
                self._round(self._turns.next_round(), _Samples())
        host = {arm.name: self._host(arm) for arm in self._window.instances[0]}
        with no_collection():
            source = tracer_of()
            parts = TimelineParts(source.source, list(source.missing), host=host)
            parts.ranges = {
                name: range_name(name, self._window.operation, self._window.case)
                for name in self._window.names
            }
            samples = {tracing: _Samples() for tracing in Tracing}
            lost = sum(
                self._pass(source, tracing, pairs, samples[tracing])
                for tracing, pairs in self._in_turn()
            )
        taken = source.taken()
        taken.dropped += lost
        records = InOrder(taken)
        for tracing, of_tracing in samples.items():
            self._keep(parts, tracing, of_tracing, records)
        parts.seconds = round((self._clock.now_ns() - started_ns) / 1e9, 3)
        return parts

    def _host(self, arm: Arm) -> HostProfile:
        """Profile the Python and C calls of an arm's step."""
        *before, last = self._window.steps
        operation = self._window.operation

        def prepare() -> Call:
            rewind([arm])
            for step in before:
                arm.ready(operation, step)()
                arm.finish(operation)
            call = arm.ready(operation, last)
            self._port.synchronize()
            return call

        def finish() -> None:
            arm.finish(operation)
            self._port.synchronize()

        with arm.guarded():
            use(arm, LaunchPath.JIT)
            return trace_host(prepare, finish)

    def _in_turn(self) -> Iterator[tuple[Tracing, int]]:
        """Yield the passes, each with its pairs of rounds, until there are enough or time is up.

        Half of the untraced rounds come before the traced ones and half after, and no drift favours
        one kind. The traced passes of two turns never follow each other directly: when they did,
        every other pass of torch's profiler had other calls.
        """
        most = max(1, MOST_STEPS // (2 * PAIRS))
        end_ns = self._clock.now_ns() + int(SECONDS * 1e9)
        for self._turn in range(most):
            self._on_round(RoundProgress(self._turn, most, "tracing steps"))
            yield Tracing.NONE, PAIRS // 2
            yield Tracing.ALL, PAIRS
            yield Tracing.NONE, PAIRS - PAIRS // 2
            if self._clock.now_ns() >= end_ns and self._turn + 1 >= LEAST_TURNS:
                return

    def _pass(self, source: Tracer, tracing: Tracing, pairs: int, samples: _Samples) -> int:
        """Take some rounds under a kind of tracing, in up to three attempts if records are lost.

        Returns:
            The number of records that the last attempt lost.
        """
        for _ in range(ATTEMPTS):
            found = _Samples()
            with source.recording() if tracing is Tracing.ALL else nullcontext():
                # Between two traced attempts a profiler is attached anew, too.
                changed = Tracing.ALL in (tracing, self._previous)
                for _ in range(CHANGED_ROUNDS if changed else 0):
                    self._round(self._turns.next_round(), _Samples())
                self._previous = tracing
                for _ in range(pairs):
                    for turn in self._turns.next_pair():
                        self._round(turn, found)
            lost = source.dropped()
            if not lost:
                break
        samples.add(found)
        return lost

    def _round(self, turn: Turn, samples: _Samples) -> None:
        """Run each variant once through the window; time only the last step."""
        window, last = self._window, len(self._window.steps) - 1
        rewind(turn.arms)
        for place, step in enumerate(window.steps):
            for arm in turn.arms:
                with arm.guarded():
                    use(arm, LaunchPath.JIT)
                    if place == last:
                        samples.arms[arm.name].append(self._sample(arm, step))
                    else:
                        arm.ready(window.operation, step)()
                    arm.finish(window.operation)
                    self._port.synchronize()
        for name, empty in self._empty.items():
            samples.empty[name].append(self._run(empty))

    def _sample(self, arm: Arm, step: Any) -> Ran:
        """Run one step in the NVTX ranges that it has in a sweep."""
        ranges = self._ranges[arm.name]
        of_step = ranges.begin(len(self._window.steps) - 1)
        try:
            call = arm.ready(self._window.operation, step)
            of_step.push()
            return self._run(call)
        finally:
            ranges.end()

    def _run(self, call: Call) -> Ran:
        self._port.synchronize()
        host_us, step_us = host_times(self._clock, call, self._port.synchronize)
        # By the records' clock: the region's own clock gives durations, but no comparable times.
        end_ns = time.time_ns()
        return Ran(end_ns - round(step_us * 1e3), end_ns, host_us, step_us, self._turn)

    def _keep(
        self, parts: TimelineParts, tracing: Tracing, samples: _Samples, records: InOrder
    ) -> None:
        for name in self._window.names:
            ran = samples.arms[name]
            try:
                parts.steps.setdefault(name, []).append(traced_steps(tracing, ran, records))
            except RecordsLostError as error:
                parts.failed[name] = Reason(
                    code=ReasonCode.PROFILER_INCOMPLETE, message=f"{tracing}: {error}"
                )
        for empty in self._empty:
            try:
                steps = traced_steps(tracing, samples.empty[empty], records)
            except RecordsLostError:
                continue  # the cost of tracing is then unknown, and the report states that
            parts.empty.append(
                EmptyCalls(
                    name=empty,
                    tracing=tracing,
                    host_us=steps.host_us,
                    step_us=steps.step_us,
                    turns=steps.turns,
                    begin_us=steps.calls[0].start_us if steps.calls else [],
                    records=_records_of(steps),
                )
            )


@dataclass
class _Samples:
    """The steps of some rounds."""

    arms: defaultdict[str, list[Ran]] = field(default_factory=lambda: defaultdict(list))
    empty: defaultdict[EmptyName, list[Ran]] = field(default_factory=lambda: defaultdict(list))

    def add(self, others: _Samples) -> None:
        """Add the samples of other rounds."""
        for name, ran in others.arms.items():
            self.arms[name] += ran
        for empty, ran in others.empty.items():
            self.empty[empty] += ran


def _records_of(steps: TracedSteps) -> int:
    """Return the number of call records of an empty call, without the wait after it.

    It is at least 1: where no calls are recorded, a kernel has one record, or none is expected.
    """
    return max(1, sum(call.records for call in steps.calls if _is_before_return(call, steps)))


def _is_before_return(call: HostCall, steps: TracedSteps) -> bool:
    pairs = zip(call.start_us, steps.host_us, strict=True)
    return median([start - host for start, host in pairs]) < 0


def _repeated(call: Call, times: int) -> None:
    for _ in range(times):
        call()
        _BETWEEN[::_LINE_BYTES]
