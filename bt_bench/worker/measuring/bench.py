"""Benches: measuring cases on a CUDA device, or on the CPU under Triton's interpreter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from bt_bench.base import no_collection
from bt_bench.protocol import Operation
from bt_bench.results import Calibration, CompiledKernel, LaunchCensus, LaunchPath, Load, Plan
from bt_bench.worker.checking.check import Spoil
from bt_bench.worker.measuring.calibration.calibrate import calibrate, calibrate_host
from bt_bench.worker.measuring.compile_ledger import CompileLedger
from bt_bench.worker.measuring.launch_paths import supports, use
from bt_bench.worker.measuring.methods.graphs import GRAPH, measure_graphs, run_captured
from bt_bench.worker.measuring.methods.interpreter import count_launches
from bt_bench.worker.measuring.methods.profiler import profile_together, profile_window
from bt_bench.worker.measuring.ports import Call, Clock, CudaPort, DevicePort, SystemClock
from bt_bench.worker.measuring.probes import (
    BusyProbe,
    EventProbe,
    HostProbe,
    Keeping,
    PipelinedProbe,
    Probe,
    StageProbe,
)
from bt_bench.worker.measuring.profiler_session import ProfilerSession, profiler_session
from bt_bench.worker.measuring.records import Records
from bt_bench.worker.measuring.rounds import ReplayWindow
from bt_bench.worker.measuring.spot_checks import TimingWay
from bt_bench.worker.measuring.timing import rewind
from bt_bench.worker.measuring.watch import NoTelemetry, NvmlTelemetry, Surroundings
from bt_bench.worker.tasks.arm import Arm

Censuses = dict[str, LaunchCensus | str]  # by arm: its census, or why its records are unusable


class Bench(ABC):
    """Measurements of cases on one kind of device.

    A device that cannot take a measurement inherits a method that does nothing.
    """

    device: torch.device
    around: Surroundings

    @abstractmethod
    def calibrate(self, plan: Plan) -> Calibration:
        """Measure the harness's own cost and the errors of the plan's methods."""

    @abstractmethod
    def probes(self, operation: Operation, plan: Plan) -> list[Probe]:
        """Return the probes that time a step on this device."""

    @abstractmethod
    def census(self, window: ReplayWindow, plan: Plan, records: Records) -> Censuses:
        """Count the launches of each arm, and add device times to the records."""

    def replay_graphs(self, window: ReplayWindow, plan: Plan, records: Records) -> None:  # noqa: B027
        """Add the series of captured graphs to the records, if possible."""

    def graph_ways(self, operation: Operation, plan: Plan) -> list[TimingWay]:
        """Return the ways to time calls by captured graphs: one, or none."""
        return []

    def profiled_ways(self, operation: Operation, plan: Plan) -> list[TimingWay]:
        """Return the ways to time calls by the profiler: one, or none."""
        return []

    def profile_all(self, windows: Sequence[tuple[ReplayWindow, Records]], plan: Plan) -> None:  # noqa: B027
        """Add device times on an idle device to the records of several windows, if possible."""

    def compiled(self, window: ReplayWindow) -> dict[str, list[CompiledKernel]]:
        """Return the binaries that each arm launches; empty where nothing is compiled."""
        return {}


class CpuBench(Bench):
    """A bench without a GPU: times staging, and counts launches in Triton's interpreter."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.device = torch.device("cpu")
        self.around = Surroundings(clock or SystemClock(), NoTelemetry(), CompileLedger())

    def calibrate(self, plan: Plan) -> Calibration:
        """Calibrate the host alone."""
        return calibrate_host(self.around.clock)

    def probes(self, operation: Operation, plan: Plan) -> list[Probe]:
        """Return a staging probe if the operation stages: nothing else can be timed."""
        return [StageProbe(self.around.clock)] if operation.traits.stages else []

    def census(self, window: ReplayWindow, plan: Plan, records: Records) -> Censuses:
        """Count launches in one replay."""
        counted: Censuses = {}
        for arm in window.instances[0]:
            with arm.guarded():
                counted[arm.name] = count_launches(arm, window.steps, window.operation)
        return counted


class CudaBench(Bench):
    """A bench on a CUDA device: host clock, events, CUPTI and captured graphs."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._ledger = CompileLedger()
        self._ledger.install()
        self.around = Surroundings(clock or SystemClock(), NvmlTelemetry(), self._ledger)
        self._port: DevicePort = CudaPort()

    def calibrate(self, plan: Plan) -> Calibration:
        """Run the quick calibration."""
        profiles = bool(plan.profile_rounds)
        return calibrate(self.around.clock, self._port, thorough=False, profiles=profiles)

    def probes(self, operation: Operation, plan: Plan) -> list[Probe]:
        """Return the staging probe for the host-only operation, else all probes of the plan."""
        if operation.traits.on_host:
            return [StageProbe(self.around.clock)]
        stages = operation.traits.stages
        return cuda_probes(plan, self.around.clock, self._port, stages=stages)

    def replay_graphs(self, window: ReplayWindow, plan: Plan, records: Records) -> None:
        """Capture and replay the arms that support it, if the plan includes graphs."""
        if GRAPH in plan.launch_paths and not window.operation.traits.on_host:
            with no_collection():
                measure_graphs(window, plan, self.around.clock, self._port, records)

    def graph_ways(self, operation: Operation, plan: Plan) -> list[TimingWay]:
        """Return the way by a captured graph, if the plan includes graphs."""
        if GRAPH not in plan.launch_paths or operation.traits.on_host:
            return []

        def replay(arm: Arm, _operation: Operation, call: Call, spoil: Spoil) -> object:
            use(arm, GRAPH)
            result = run_captured(self._port, call, spoil)
            arm.driver.replayed(call)
            return result

        return [TimingWay("graphs", lambda arm: supports(arm, GRAPH, operation), replay)]

    def profiled_ways(self, operation: Operation, plan: Plan) -> list[TimingWay]:
        """Return the profiler's way, unless nothing is launched or the plan profiles nothing."""
        if operation.traits.on_host or not plan.profile_rounds:
            return []
        sessions: list[ProfilerSession] = []

        @contextmanager
        def session() -> Iterator[None]:
            with profiler_session(self._port.synchronize) as started:
                sessions.append(started)
                yield
                sessions.clear()

        def profile(arm: Arm, _operation: Operation, call: Call, _spoil: Spoil) -> object:
            use(arm, LaunchPath.JIT)
            kept = Keeping(call)
            sessions[0].run(kept.call)
            return kept.result

        return [TimingWay("the profiler", lambda _: True, profile, session)]

    def census(self, window: ReplayWindow, plan: Plan, records: Records) -> Censuses:
        """Profile launches and device times, unless the plan profiles nothing."""
        if window.operation.traits.on_host or not plan.profile_rounds:
            return {}
        return dict(profile_window(window, plan, self.around.clock, self._port, records))

    def profile_all(self, windows: Sequence[tuple[ReplayWindow, Records]], plan: Plan) -> None:
        """Add device times by the profiler."""
        timed = [(w, records) for w, records in windows if not w.operation.traits.on_host]
        if timed:
            profile_together(timed, plan, self.around.clock, self._port)

    def compiled(self, window: ReplayWindow) -> dict[str, list[CompiledKernel]]:
        """Collect the binaries of each arm in a replay of its own."""
        found: dict[str, list[CompiledKernel]] = {}
        for arm in window.instances[0]:
            rewind([arm])
            with arm.guarded(), self._ledger.recording() as recording:
                use(arm, LaunchPath.JIT)
                for step in window.steps:
                    arm.ready(window.operation, step)()
                    arm.finish(window.operation)
                self._port.synchronize()
            found[arm.name] = recording.kernels()
        return found


def cuda_probes(
    plan: Plan, clock: Clock, device: DevicePort, *, stages: bool = True
) -> list[Probe]:
    """Return the probes of a plan; host and step time of Triton's call decide when to stop."""
    probes: list[Probe] = []
    for path in (path for path in plan.launch_paths if path is not GRAPH):
        probes.append(HostProbe(clock, device, path, stages=stages))
        if Load.IDLE in plan.loads:
            probes += [EventProbe(device, path), PipelinedProbe(clock, device, path)]
    if Load.BUSY in plan.loads:
        # Device work does not depend on the launch path, so one path is enough.
        probes += [BusyProbe(clock, device, LaunchPath.JIT, l2) for l2 in plan.l2]
    return probes
