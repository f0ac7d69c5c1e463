"""Everything that is measured of one case: times with all arms side by side, then launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from bt_bench.arms import Arm, ArmFailedError, inputs_on
from bt_bench.checking.check import verify_after_timing
from bt_bench.measuring.cupti_census import Profiled, profile_window
from bt_bench.measuring.interpreter_census import count_launches
from bt_bench.measuring.ports import Clock, CudaPort, SystemClock
from bt_bench.measuring.probes import EventProbe, HostProbe, Probe, StageProbe
from bt_bench.measuring.timing import Window, measure
from bt_bench.model import LaunchCensus, Measurement, Operation, Plan, Reason, ReasonCode
from bt_bench.workloads.steps import Workload

PROFILER_ATTEMPTS = 3


@dataclass
class Measured:
    """What was measured of one arm, or why nothing was."""

    measurements: list[Measurement] = field(default_factory=list)
    launches: LaunchCensus | None = None
    reason: Reason | None = None


class Bench(Protocol):
    """How a kind of device is measured."""

    device: torch.device

    def probes(self, operation: Operation) -> Sequence[Probe]:
        """The ways to time a step on this device."""
        ...

    def census(self, window: Window, plan: Plan) -> dict[str, Measured]:
        """Launches of each arm, and what is measured along with counting them."""
        ...


class CpuBench:
    """No GPU: staging is timed, launches are those that the interpreter was asked for."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.device = torch.device("cpu")
        self._clock = clock or SystemClock()

    def probes(self, operation: Operation) -> Sequence[Probe]:
        """Staging, whatever the operation: nothing else can be timed."""
        return (StageProbe(self._clock),)

    def census(self, window: Window, plan: Plan) -> dict[str, Measured]:
        """Launches, counted in one replay."""
        counted = {}
        for arm in window.instances[0]:
            with arm.guarded():
                launches = count_launches(arm, window.steps, window.operation)
            counted[arm.name] = Measured(launches=launches)
        return counted


class CudaBench:
    """A CUDA device: host clock and events on an idle device, CUPTI for device time."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._clock = clock or SystemClock()
        self._port = CudaPort()

    def probes(self, operation: Operation) -> Sequence[Probe]:
        """Staging alone for the operation that is host only; else host clock and events."""
        if operation is Operation.STAGE:
            return (StageProbe(self._clock),)
        return (HostProbe(self._clock, self._port), EventProbe(self._port))

    def census(self, window: Window, plan: Plan) -> dict[str, Measured]:
        """Launches and device time; tried again when the profiler has dropped records."""
        if window.operation is Operation.STAGE:
            return {name: Measured() for name in window.names}
        for attempt in range(PROFILER_ATTEMPTS):
            last = attempt == PROFILER_ATTEMPTS - 1
            profiled = profile_window(window, plan.profile_rounds, plan.seed)
            if last or not any(isinstance(found, str) for found in profiled.values()):
                break
        return {name: _measured(found) for name, found in profiled.items()}


def _measured(found: Profiled | str) -> Measured:
    """What the profiler found, or why it found nothing that can be trusted."""
    if isinstance(found, str):
        return Measured(reason=Reason(code=ReasonCode.PROFILER_INCOMPLETE, message=found))
    launches, gpu_us = found
    return Measured([gpu_us], launches)


def measure_case(
    case: str,
    variants: dict[str, type[Any]],
    workload: Workload,
    operation: Operation,
    plan: Plan,
    bench: Bench,
    on_round: Callable[[int], None],
) -> dict[str, Measured]:
    """Measures one operation on one workload for all variants.

    A variant that raises is left out and reported; the others are measured again without it,
    so that their samples come from rounds in which the same arms took part. A variant that is
    wrong after its rounds has no measurements, only the reason.
    """
    results: dict[str, Measured] = {}
    while True:
        remaining = {name: v for name, v in variants.items() if name not in results}
        if not remaining:
            return results
        try:
            measured = _measure_all(case, remaining, workload, operation, plan, bench, on_round)
        except ArmFailedError as error:
            results[error.arm] = Measured(reason=error.reason())
        else:
            return {name: results.get(name) or measured[name] for name in variants}


def _measure_all(
    case: str,
    variants: dict[str, type[Any]],
    workload: Workload,
    operation: Operation,
    plan: Plan,
    bench: Bench,
    on_round: Callable[[int], None],
) -> dict[str, Measured]:
    instances = [
        [Arm(name, variant, workload, bench.device) for name, variant in variants.items()]
        # An instance takes pairs of rounds; one that would get none is not made.
        for _ in range(min(plan.instances, max(1, plan.rounds // 2)))
    ]
    window = Window(case, instances, inputs_on(bench.device, workload), operation)
    times = measure(window, bench.probes(operation), plan, on_round)
    results = bench.census(window, plan)
    for name, measured in results.items():
        measured.measurements = times[name] + measured.measurements
    for arms in instances:
        found = verify_after_timing(arms, window.steps, workload, operation, bench.device)
        for name, reason in found.items():
            results[name] = Measured(reason=reason)
    return results
