"""Ways to time one step of one arm. Each is a pass of its own, so that none disturbs another."""

from __future__ import annotations

from typing import Protocol

from bt_bench.arms import Arm, StepInputs
from bt_bench.measuring.nvtx_ranges import Range
from bt_bench.measuring.ports import Clock, DevicePort
from bt_bench.model import Operation, Quantity


class Probe(Protocol):
    """Takes one sample of each of its quantities from one step."""

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What a sample is of, in its order."""
        ...

    def sample(
        self, arm: Arm, operation: Operation, step: StepInputs, region: Range
    ) -> tuple[float, ...]:
        """Runs the step and returns a sample per quantity, in µs."""
        ...


class StageProbe:
    """Host time of staging alone. All that can be timed without a GPU."""

    quantities = (Quantity.STAGE_US,)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def sample(
        self, arm: Arm, operation: Operation, step: StepInputs, region: Range
    ) -> tuple[float, ...]:
        """Times `append_block_ids` for all rows of the step."""
        call = arm.bind(Operation.STAGE, step)
        region.push()
        start = self._clock.now_ns()
        call()
        end = self._clock.now_ns()
        region.pop()
        arm.tables.apply_staged_writes()
        return ((end - start) / 1e3,)


class HostProbe:
    """Host clock on an idle device: staging, the call until it returns, and until it has run."""

    quantities = (Quantity.STAGE_US, Quantity.HOST_US, Quantity.STEP_US)

    def __init__(self, clock: Clock, device: DevicePort) -> None:
        self._clock = clock
        self._device = device

    def sample(
        self, arm: Arm, operation: Operation, step: StepInputs, region: Range
    ) -> tuple[float, ...]:
        """Times staging, then the operation up to its return and up to an idle device."""
        now_ns, synchronize = self._clock.now_ns, self._device.synchronize
        stage = arm.bind(Operation.STAGE, step)
        stage_start = now_ns()
        stage()
        stage_end = now_ns()
        arm.prepare(operation)
        call = arm.bind(operation, step)
        synchronize()
        region.push()
        start = now_ns()
        call()
        returned = now_ns()
        synchronize()
        end = now_ns()
        region.pop()
        return ((stage_end - stage_start) / 1e3, (returned - start) / 1e3, (end - start) / 1e3)


class EventProbe:
    """A pair of events around the call on an idle device: what the published results used.

    On an idle device the first event passes at once, so the time contains the host's launching.
    """

    quantities = (Quantity.EVENT_US,)

    def __init__(self, device: DevicePort) -> None:
        self._device = device

    def sample(
        self, arm: Arm, operation: Operation, step: StepInputs, region: Range
    ) -> tuple[float, ...]:
        """Times the operation between two events."""
        arm.stage(step)
        arm.prepare(operation)
        call = arm.bind(operation, step)
        self._device.synchronize()
        region.push()
        self._device.record_start()
        call()
        self._device.record_end()
        region.pop()
        self._device.synchronize()
        return (self._device.elapsed_us(),)
