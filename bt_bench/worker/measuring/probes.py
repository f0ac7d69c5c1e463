"""Probes: ways to time one step of one arm.

Each probe replays the window in a pass of its own, and therefore disturbs no other.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

from bt_bench.protocol import Operation
from bt_bench.results import Cache, LaunchPath, Load, Method, Quantity, Series
from bt_bench.worker.checking.check import Spoil
from bt_bench.worker.measuring.launch_paths import supports, use
from bt_bench.worker.measuring.nvtx_ranges import Range
from bt_bench.worker.measuring.ports import Call, Clock, DevicePort
from bt_bench.worker.measuring.regions import (
    LONGEST_QUEUE_US,
    NOTHING,
    between_events,
    between_events_and_readings,
    host_time_in_a_row,
    host_time_restaging,
    host_times,
    outlasted,
    queue_ahead,
)
from bt_bench.worker.tasks.arm import Arm

# Calls in a row for `pipelined_us`: enough to fill the queue. Even a step of 10 launches stays far
# below the 1024 launches that a stream holds.
PIPELINED_CALLS = 8
SHORTEST_QUEUE_US = 300.0

Sample = tuple[float, ...]  # of each of a probe's series, in µs


class Probe(ABC):
    """A way to take one sample of each of its series from one step of one arm.

    Attributes:
        series: the series of a sample's values, in order.
        deciding: the series that decide when a case has been measured long enough. A probe that has
            any runs in every round, the others only in some.
    """

    series: tuple[Series, ...]
    deciding: tuple[Series, ...] = ()

    def queue_us(self, arm: Arm) -> float | None:
        """Return the length of the device work queued ahead of an arm's operation, if any."""
        return None

    @abstractmethod
    def serves(self, arm: Arm, operation: Operation) -> bool:
        """Return whether the probe can time an operation of an arm."""

    @abstractmethod
    def sample(self, arm: Arm, operation: Operation, step: Any, nvtx_range: Range) -> Sample | None:
        """Run the step and return a sample per series, in µs.

        Returns:
            `None` where the device cannot be kept busy until the call has returned.
        """

    @abstractmethod
    def make(self, arm: Arm, operation: Operation, call: Call, spoil: Spoil) -> object:
        """Make a call in the region that times it, and return its result.

        Spot checks use this: the call cannot distinguish it from a sample.

        Args:
            arm: the arm whose call is made.
            operation: the operation that the call performs.
            call: the call.
            spoil: overwrites the result of a call that is made several times.
        """


class Keeping:
    """A call that keeps its result, for regions that drop it.

    Args:
        call: the call to wrap.

    Attributes:
        call: the replacement, to be called once. It adds no Python frame: the variant finds the
            region's frame above its own, as in a timed sample.
    """

    def __init__(self, call: Call) -> None:
        self._results: list[object] = []
        self.call: Call = partial(self._results.extend, map(operator.call, (call,)))

    @property
    def result(self) -> object:
        """Return the result of the call."""
        return self._results[0]


def eager_series(
    quantities: Sequence[Quantity],
    method: Method,
    path: LaunchPath = LaunchPath.JIT,
    load: Load = Load.IDLE,
    l2: Cache = Cache.HOT,
) -> tuple[Series, ...]:
    """Return a series per quantity, all by one method and under one condition."""
    return tuple(
        Series(quantity=quantity, method=method, launch_path=path, load=load, l2=l2)
        for quantity in quantities
    )


class StageProbe(Probe):
    """Host time of staging alone, the only quantity that can be timed without a GPU."""

    series = eager_series([Quantity.STAGE_US], Method.HOST_CLOCK)
    deciding = series

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def serves(self, arm: Arm, operation: Operation) -> bool:
        """Return true: every arm can stage."""
        return True

    def sample(self, arm: Arm, operation: Operation, step: Any, nvtx_range: Range) -> Sample:
        """Time the staging of all rows of the step."""
        call = arm.staging(step)
        nvtx_range.push()
        stage_us, _ = host_times(self._clock, call)
        nvtx_range.pop()
        arm.finish_staging()
        return (stage_us,)

    def make(self, arm: Arm, operation: Operation, call: Call, spoil: Spoil) -> object:
        """See `Probe`. If staging is timed beside another operation, call the operation plainly."""
        if not operation.traits.on_host:
            return call()
        kept = Keeping(call)
        host_times(self._clock, kept.call)
        return kept.result


class _PathProbe(Probe):
    """The common base of probes of one launch path."""

    def __init__(self, device: DevicePort, path: LaunchPath) -> None:
        self._device = device
        self._path = path

    def serves(self, arm: Arm, operation: Operation) -> bool:
        """Return whether the arm supports the launch path."""
        return supports(arm, self._path, operation)


class HostProbe(_PathProbe):
    """Host clock on an idle device: staging, the call until it returns, and until it has run."""

    def __init__(
        self, clock: Clock, device: DevicePort, path: LaunchPath, *, stages: bool = True
    ) -> None:
        super().__init__(device, path)
        self._clock = clock
        quantities = [Quantity.HOST_US, Quantity.STEP_US]
        self._stages = stages
        # One path is enough to decide when to stop. Staging launches nothing: one is enough, too.
        if path is LaunchPath.JIT:
            self.deciding = eager_series(quantities, Method.HOST_CLOCK, path)
            quantities += [Quantity.STAGE_US] if stages else []
        self.series = eager_series(quantities, Method.HOST_CLOCK, path)

    def sample(self, arm: Arm, operation: Operation, step: Any, nvtx_range: Range) -> Sample:
        """Time staging, if any, then the operation up to its return and to an idle device."""
        synchronize = self._device.synchronize
        use(arm, self._path)
        stage_us = host_times(self._clock, arm.staging(step))[0] if self._stages else 0.0
        call = arm.ready(operation, step, staged=True)
        synchronize()
        nvtx_range.push()
        host_us, step_us = host_times(self._clock, call, synchronize)
        nvtx_range.pop()
        return (host_us, step_us, stage_us)[: len(self.series)]

    def make(self, arm: Arm, operation: Operation, call: Call, spoil: Spoil) -> object:
        """See `Probe`."""
        synchronize = self._device.synchronize
        use(arm, self._path)
        kept = Keeping(call)
        synchronize()
        host_times(self._clock, kept.call, synchronize)
        return kept.result


class EventProbe(_PathProbe):
    """A pair of events around the call on an idle device, the method of the published results.

    On an idle device the first event passes at once, so the time includes the host's launching.
    """

    def __init__(self, device: DevicePort, path: LaunchPath) -> None:
        super().__init__(device, path)
        self.series = eager_series([Quantity.EVENT_US], Method.EVENTS, path)

    def sample(self, arm: Arm, operation: Operation, step: Any, nvtx_range: Range) -> Sample:
        """Time the operation between two events."""
        use(arm, self._path)
        call = arm.ready(operation, step)
        self._device.synchronize()
        nvtx_range.push()
        between_events(self._device, call)
        nvtx_range.pop()
        self._device.synchronize()
        return (self._device.elapsed_us(),)

    def make(self, arm: Arm, operation: Operation, call: Call, spoil: Spoil) -> object:
        """See `Probe`."""
        use(arm, self._path)
        kept = Keeping(call)
        self._device.synchronize()
        between_events(self._device, kept.call)
        self._device.synchronize()
        return kept.result


class PipelinedProbe(_PathProbe):
    """Host clock over several calls of one step and one synchronisation at the end.

    Calls that consume staged writes are staged again each time, within the timed region, since
    an engine has to stage as well.
    """

    def __init__(self, clock: Clock, device: DevicePort, path: LaunchPath) -> None:
        super().__init__(device, path)
        self._clock = clock
        self.series = eager_series([Quantity.PIPELINED_US], Method.HOST_CLOCK, path)

    def sample(self, arm: Arm, operation: Operation, step: Any, nvtx_range: Range) -> Sample:
        """Time `PIPELINED_CALLS` calls and the synchronisation; return the time per call."""
        synchronize = self._device.synchronize
        use(arm, self._path)
        restages = operation.traits.consumes_staged
        undo = arm.driver.undo()
        call = arm.bind(operation, step) if restages else arm.ready(operation, step)
        in_a_row = self._clock, call, PIPELINED_CALLS, synchronize
        synchronize()
        nvtx_range.push()
        if restages:
            per_call_us = host_time_restaging(*in_a_row, arm.staging(step), undo)
        else:
            per_call_us = host_time_in_a_row(*in_a_row)
        nvtx_range.pop()
        return (per_call_us,)

    def make(self, arm: Arm, operation: Operation, call: Call, spoil: Spoil) -> object:
        """See `Probe`. The last of several calls in a row has to restore the spoilt result.

        A call that consumes staged writes is made once.
        """
        use(arm, self._path)
        if operation.traits.consumes_staged:
            only = Keeping(call)
            self._device.synchronize()
            host_time_in_a_row(self._clock, only.call, 1, self._device.synchronize)
            return only.result
        first, last = Keeping(call), Keeping(call)
        self._device.synchronize()
        host_time_in_a_row(self._clock, first.call, 1)
        host_time_in_a_row(self._clock, call, PIPELINED_CALLS)
        spoil(first.result)
        host_time_in_a_row(self._clock, last.call, 1, self._device.synchronize)
        return last.result


class BusyProbe(_PathProbe):
    """The operation behind a queue of device work that outlasts the call.

    Both events pass only after the queue, so no host time lies between them: their distance is
    the time that the operation adds on a busy device. With a cold L2, a flush precedes the queue.
    """

    def __init__(self, clock: Clock, device: DevicePort, path: LaunchPath, l2: Cache) -> None:
        super().__init__(device, path)
        self._clock = clock
        self._l2 = l2
        self._queues_us: dict[str, float] = {}
        self.series = eager_series([Quantity.EVENT_US], Method.EVENTS, path, Load.BUSY, l2)
        self.series += eager_series([Quantity.HOST_US], Method.HOST_CLOCK, path, Load.BUSY, l2)

    def queue_us(self, arm: Arm) -> float | None:
        """Return the length that the arm's calls have needed so far."""
        return self._queues_us.get(arm.name, SHORTEST_QUEUE_US)

    def sample(self, arm: Arm, operation: Operation, step: Any, nvtx_range: Range) -> Sample | None:
        """Time the operation between two events, and the call on the host.

        If the queue ends too early, it is doubled and the step is taken again.

        Returns:
            `None` where the longest queue ends too early: the call waits for the device.
        """
        use(arm, self._path)
        undo = arm.driver.undo()
        queue_us = self._queues_us.get(arm.name, SHORTEST_QUEUE_US)
        while queue_us <= LONGEST_QUEUE_US:
            undo()
            sample = self._behind(queue_us, arm.ready(operation, step), nvtx_range)
            if sample is not None:
                self._queues_us[arm.name] = queue_us
                return sample
            queue_us *= 2
        return None

    def make(self, arm: Arm, operation: Operation, call: Call, spoil: Spoil) -> object:
        """See `Probe`."""
        use(arm, self._path)
        kept = Keeping(call)
        self._queue(self.queue_us(arm) or SHORTEST_QUEUE_US)
        between_events_and_readings(self._clock, self._device, kept.call)
        outlasted(self._device)
        return kept.result

    def _queue(self, queue_us: float) -> None:
        flush = self._device.flush_l2 if self._l2 is Cache.COLD else NOTHING
        queue_ahead(self._device, queue_us, flush)

    def _behind(self, queue_us: float, call: Call, nvtx_range: Range) -> Sample | None:
        device = self._device
        self._queue(queue_us)
        nvtx_range.push()
        host_us = between_events_and_readings(self._clock, device, call)
        nvtx_range.pop()
        if not outlasted(device):
            return None
        return (device.elapsed_us(), host_us)
