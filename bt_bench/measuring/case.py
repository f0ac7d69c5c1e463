"""Measures one case: rounds, captured graphs, profiled passes, launches; all arms side by side."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import torch

from bt_bench.arms import Arm, inputs_on
from bt_bench.checking.check import verify_after_timing
from bt_bench.collection import no_collection
from bt_bench.measuring.calibrate import calibrate, calibrate_host
from bt_bench.measuring.cupti_census import profile_together, profile_window
from bt_bench.measuring.graphs import GRAPH, measure_graphs, run_captured
from bt_bench.measuring.interpreter_census import count_launches
from bt_bench.measuring.ledger import CompileLedger
from bt_bench.measuring.paths import METHODS, supports, use
from bt_bench.measuring.ports import Clock, CudaPort, DevicePort, SystemClock
from bt_bench.measuring.probes import (
    BusyProbe,
    EventProbe,
    HostProbe,
    PipelinedProbe,
    Probe,
    StageProbe,
)
from bt_bench.measuring.records import Records
from bt_bench.measuring.rounds import Window
from bt_bench.measuring.telemetry import NoTelemetry, NvmlTelemetry
from bt_bench.measuring.timing import Rounds, Stopped, deciding_series, rewind
from bt_bench.measuring.watch import Surroundings
from bt_bench.model import (
    Calibration,
    CompiledKernel,
    ControlSpread,
    DiscardCode,
    LaunchCensus,
    LaunchPath,
    Load,
    Measurement,
    Operation,
    Plan,
    Reason,
    ReasonCode,
    Stopping,
)
from bt_bench.outcome import Measured, RoundProgress
from bt_bench.resolution import pair_rounds
from bt_bench.stats import median, relative_half_width, typical
from bt_bench.workloads.steps import Workload

# No variant file can have this name, so it can be no variant's.
CONTROL = "(control)"
# Fewer rounds than this are too few to say anything; the median has an interval from 6 on.
FEWEST_ROUNDS = 6

Censuses = dict[str, LaunchCensus | str]  # per arm, or why its records cannot be right


class Bench(Protocol):
    """How a kind of device is measured."""

    device: torch.device
    around: Surroundings

    def calibrate(self) -> Calibration:
        """What the harness costs, and how far its methods are from the truth."""
        ...

    def probes(self, operation: Operation, plan: Plan) -> list[Probe]:
        """The ways to time a step on this device."""
        ...

    def replay_graphs(self, window: Window, plan: Plan, records: Records) -> None:
        """Adds what captured graphs tell."""
        ...

    def captured(self, call: Callable[[], object]) -> object:
        """Makes a call by capturing and replaying it; returns what the captured call returned."""
        ...

    def census(self, window: Window, plan: Plan, records: Records) -> Censuses:
        """Launches of each arm; adds device times to the records."""
        ...

    def profile_all(self, windows: Sequence[tuple[Window, Records]], plan: Plan) -> None:
        """Adds device times on an idle device to the records of several windows, where it can."""
        ...

    def compiled(self, window: Window) -> dict[str, list[CompiledKernel]]:
        """The binaries that each arm launches; empty where nothing is compiled."""
        ...


class CpuBench:
    """No GPU: staging is timed, launches are those that the interpreter was asked for."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.device = torch.device("cpu")
        self.around = Surroundings(clock or SystemClock(), NoTelemetry(), CompileLedger())

    def calibrate(self) -> Calibration:
        """The host's part alone."""
        return calibrate_host(self.around.clock)

    def probes(self, operation: Operation, plan: Plan) -> list[Probe]:
        """Staging, whatever the operation: nothing else can be timed."""
        return [StageProbe(self.around.clock)]

    def replay_graphs(self, window: Window, plan: Plan, records: Records) -> None:
        """There are none."""

    def captured(self, call: Callable[[], object]) -> object:
        """Makes the call: there is nothing to capture."""
        return call()

    def census(self, window: Window, plan: Plan, records: Records) -> Censuses:
        """Launches, counted in one replay."""
        counted: Censuses = {}
        for arm in window.instances[0]:
            with arm.guarded():
                counted[arm.name] = count_launches(arm, window.steps, window.operation)
        return counted

    def profile_all(self, windows: Sequence[tuple[Window, Records]], plan: Plan) -> None:
        """There are no device times."""

    def compiled(self, window: Window) -> dict[str, list[CompiledKernel]]:
        """The interpreter compiles nothing."""
        return {}


class CudaBench:
    """A CUDA device: host clock, events, CUPTI and captured graphs."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._ledger = CompileLedger()
        self._ledger.install()
        self.around = Surroundings(clock or SystemClock(), NvmlTelemetry(), self._ledger)
        self._port: DevicePort = CudaPort()

    def calibrate(self) -> Calibration:
        """The quick calibration."""
        return calibrate(self.around.clock, self._port, thorough=False)

    def probes(self, operation: Operation, plan: Plan) -> list[Probe]:
        """Staging alone for the operation that is host only; else all that the plan asks for."""
        if operation is Operation.STAGE:
            return [StageProbe(self.around.clock)]
        return cuda_probes(plan, self.around.clock, self._port)

    def replay_graphs(self, window: Window, plan: Plan, records: Records) -> None:
        """Captures and replays what can be captured, if the plan asks for it."""
        if GRAPH in plan.launch_paths and window.operation is not Operation.STAGE:
            with no_collection():
                measure_graphs(window, plan, self.around.clock, self._port, records)

    def captured(self, call: Callable[[], object]) -> object:
        """Captures and replays a call."""
        return run_captured(self._port, call)

    def census(self, window: Window, plan: Plan, records: Records) -> Censuses:
        """Launches and device time, by the profiler."""
        if window.operation is Operation.STAGE:
            return {}
        return dict(profile_window(window, plan, self.around.clock, self._port, records))

    def profile_all(self, windows: Sequence[tuple[Window, Records]], plan: Plan) -> None:
        """Device times by the profiler."""
        timed = [(w, records) for w, records in windows if w.operation is not Operation.STAGE]
        if timed:
            profile_together(timed, plan, self.around.clock, self._port)

    def compiled(self, window: Window) -> dict[str, list[CompiledKernel]]:
        """The binaries of each arm, collected in a replay of its own."""
        found: dict[str, list[CompiledKernel]] = {}
        for arm in window.instances[0]:
            rewind([arm])
            with arm.guarded(), self._ledger.recording() as recording:
                use(arm, LaunchPath.JIT)
                for step in window.steps:
                    arm.stage(step)
                    arm.prepare(window.operation)
                    arm.bind(window.operation, step)()
                self._port.synchronize()
            found[arm.name] = recording.kernels()
        return found


def cuda_probes(plan: Plan, clock: Clock, device: DevicePort) -> list[Probe]:
    """The probes of a plan; host and step time of Triton's call decide when to stop."""
    paths = [path for path in plan.launch_paths if path is not GRAPH]
    probes: list[Probe] = []
    for path in paths:
        probes.append(HostProbe(clock, device, path, decides=path is LaunchPath.JIT))
        if Load.IDLE in plan.loads:
            probes += [EventProbe(device, path), PipelinedProbe(clock, device, path)]
    if Load.BUSY in plan.loads:
        # Device work does not depend on the launch path, so one path is enough.
        probes += [BusyProbe(clock, device, LaunchPath.JIT, l2) for l2 in plan.l2]
    return probes


def measure_case(
    case: str,
    variants: Mapping[str, type[Any]],
    workload: Workload,
    operation: Operation,
    plan: Plan,
    bench: Bench,
    on_round: Callable[[RoundProgress], None],
    control: type[Any] | None = None,
) -> dict[str, Measured]:
    """Measures one operation on one workload for all variants.

    With `control`, a copy of the first variant's class, an arm of it takes part as well. A variant
    that is wrong after its rounds has no measurements, only the reason.

    Raises:
        ArmFailedError: when a variant raises; the others have to be measured without it, so that
            their samples come from rounds in which the same arms took part.
    """
    arms = dict(variants)
    original = next(iter(arms))
    if control is not None:
        arms[CONTROL] = control
    instances = build_instances(arms, workload, plan, bench.device)
    window = Window(case, instances, inputs_on(bench.device, workload), operation)
    records = Records(window.names, bench.around)
    probes = bench.probes(operation, plan)
    stopped = Rounds(window, probes, plan, bench.around.clock, records).run(on_round)
    bench.replay_graphs(window, plan, records)
    censuses = bench.census(window, plan, records)
    compiled = bench.compiled(window)
    records.discard_slow_rounds()
    measured = {}
    for name in variants:
        census = censuses.get(name)
        found = Measured(
            measurements=records.books[name].measurements(),
            notes=records.notes[name],
            launches=None if isinstance(census, str) else census,
            compiled=compiled.get(name),
            rounds=records.recorder.log_for(name),
        )
        deciding = [m for m in found.measurements if m.series in deciding_series(probes)]
        found.stopping = _stopping(stopped, records.recorder.num_discarded(), deciding)
        found.reason = _disturbed(found.stopping, deciding, plan) or _incomplete(census)
        measured[name] = found
    if control is not None:
        _add_control(measured, original, records.books[CONTROL].measurements())
    for name, reason in _verify(window, workload, plan, bench).items():
        measured[original if name == CONTROL else name] = Measured(reason=reason)
    return measured


def build_instances(
    arms: Mapping[str, type[Any]], workload: Workload, plan: Plan, device: torch.device
) -> list[list[Arm]]:
    """Copies of all arms, built in random order: memory that comes first differs from the rest."""
    rng = random.Random(plan.seed)
    instances = []
    # An instance takes pairs of rounds; one that would get none is not made.
    for _ in range(min(plan.instances, max(1, plan.rounds // 2))):
        order = rng.sample(list(arms), len(arms))
        built = {name: Arm(name, arms[name], workload, device) for name in order}
        instances.append([built[name] for name in arms])
    return instances


def _stopping(
    stopped: Stopped, discarded: Mapping[DiscardCode, int], deciding: Sequence[Measurement]
) -> Stopping:
    """When and why the rounds ended, with the intervals of what decided that."""
    return Stopping(
        reason=stopped.reason,
        rounds=stopped.rounds,
        discarded=dict(discarded),
        seconds=round(stopped.seconds, 3),
        half_widths={
            measurement.quantity: relative_half_width([median(row) for row in measurement.samples])
            for measurement in deciding
        },
    )


def _incomplete(census: LaunchCensus | str | None) -> Reason | None:
    if not isinstance(census, str):
        return None
    return Reason(code=ReasonCode.PROFILER_INCOMPLETE, message=census)


def _disturbed(stopping: Stopping, deciding: Sequence[Measurement], plan: Plan) -> Reason | None:
    """The reason where too few rounds count because others were disturbed."""
    fewest = min(FEWEST_ROUNDS, plan.rounds)
    kept = min((len(measurement.rounds) for measurement in deciding), default=0)
    if not stopping.discarded or kept >= fewest:
        return None
    codes = ", ".join(f"{count} {code}" for code, count in stopping.discarded.items())
    return Reason(
        code=ReasonCode.DISTURBED,
        message=f"{kept} of {stopping.rounds} rounds count, expected {fewest} or more "
        f"(discarded: {codes}); measure again when the GPU is cool and nobody else uses it",
    )


def _add_control(
    measured: Mapping[str, Measured], original: str, control: list[Measurement]
) -> None:
    """Stores the copy's samples beside its original, and their difference beside every arm."""
    measured[original].control = control
    copies = {measurement.series: measurement for measurement in control}
    spreads = []
    for measurement in measured[original].measurements:
        copy = copies.get(measurement.series)
        paired = None if copy is None else pair_rounds(copy, measurement)
        difference_us = None if paired is None else typical(paired.differences_us)
        if difference_us is not None:
            spreads.append(
                ControlSpread(
                    series=measurement.series,
                    arm=original,
                    difference_us=round(difference_us, 4),
                )
            )
    for found in measured.values():
        found.control_spreads = spreads


def _verify(window: Window, workload: Workload, plan: Plan, bench: Bench) -> dict[str, Reason]:
    """Compares every arm with the reference once more, by every launch path that was timed."""
    failed: dict[str, Reason] = {}
    operation = window.operation
    every = [arm for arms in window.instances for arm in arms]
    for path in dict.fromkeys((LaunchPath.JIT, *plan.launch_paths)):
        arms = [arm for arm in every if supports(arm, path, operation)]
        for arm in arms:
            use(arm, path)
        found = verify_after_timing(
            arms,
            window.steps,
            workload,
            operation,
            bench.device,
            through=partial(_make, bench, path),
        )
        failed = found | failed
    for arm in every:
        use(arm, LaunchPath.JIT)
    return failed


def _make(
    bench: Bench, path: LaunchPath, tables: Any, operation: Operation, call: Callable[[], object]
) -> object:
    """Makes a call as it was timed: captured and replayed where the path is a graph."""
    if path is GRAPH and METHODS[operation] in tables.capturable:
        return bench.captured(call)
    return call()
