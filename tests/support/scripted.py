"""A clock and a device that pass time only as scripted: exact numbers in, exact numbers out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bt_bench.suites.block_tables import operations as ops
from bt_bench.worker.tasks.failures import ArmFailedError

GRAPH_LAUNCH_NS = 3_000


class ScriptedClock:
    """Time passes only where the script says so, and by `tick_ns` with each reading."""

    def __init__(self, tick_ns=0):
        self.ns = 0
        self._tick_ns = tick_ns

    def now_ns(self):
        self.ns += self._tick_ns
        return self.ns


class ScriptedDevice:
    """A device that works off its queue in order, each piece of work for a set time."""

    def __init__(self, clock):
        self.clock = clock
        self.idle_from_ns = 0
        self.flushes = 0
        self._start_ns = self._end_ns = 0
        self._captured: list[int] | None = None

    def enqueue(self, duration_ns):
        if self._captured is not None:
            self._captured.append(duration_ns)
            return
        self.idle_from_ns = max(self.clock.ns, self.idle_from_ns) + duration_ns

    def host(self, duration_ns):
        """Host time, which a replay does not pay."""
        if self._captured is None:
            self.clock.ns += duration_ns

    def synchronize(self):
        self.clock.ns = max(self.clock.ns, self.idle_from_ns)

    def record_start(self):
        self._start_ns = max(self.clock.ns, self.idle_from_ns)

    def record_end(self):
        self._end_ns = max(self.clock.ns, self.idle_from_ns)

    def start_has_passed(self):
        return self._start_ns <= self.clock.ns

    def elapsed_us(self):
        return (self._end_ns - self._start_ns) / 1e3

    def occupy(self, duration_us):
        self.enqueue(int(duration_us * 1e3))

    def flush_l2(self):
        self.flushes += 1

    def capture(self, call: Callable[[], object], count: int):
        self._captured = []
        for _ in range(count):
            call()
        work, self._captured = self._captured, None
        return ScriptedGraph(self, work)


class ScriptedGraph:
    """Enqueues what was captured, for the host time of one launch."""

    def __init__(self, device, work):
        self._device, self._work = device, work

    def replay(self):
        self._device.clock.ns += GRAPH_LAUNCH_NS
        for duration_ns in self._work:
            self._device.enqueue(duration_ns)


class ScriptedVariant:
    """What is looked at in an arm's variant."""

    launch_paths = ("jit", "compiled")
    capturable = frozenset({"gather_and_compute_slot_mappings"})

    def __init__(self):
        self.launch_path = "jit"


class ScriptedDriver:
    """What a suite has for an arm; `num_blocks` is what the host knows."""

    def __init__(self):
        self.num_blocks = np.zeros((1, 2), dtype=np.int32)

    def undo(self):
        return partial(self.num_blocks.__setitem__, ..., np.array(self.num_blocks))

    def replayed(self, call):
        pass

    def may_be_empty(self, operation, step):
        return operation == ops.APPLY and not step.appends


class ScriptedArm:
    """An arm whose calls take `host_ns` times the step, less by other paths; and `gpu_ns`."""

    def __init__(self, name, device, log, host_ns=10_000, gpu_ns=3_000, fails_at=None):
        self.name = name
        self.variant = ScriptedVariant()
        self.driver = ScriptedDriver()
        self._device, self._log = device, log
        self._host_ns, self._gpu_ns, self._fails_at = host_ns, gpu_ns, fails_at

    def guarded(self):
        return _Guard(self.name)

    def rewind(self):
        self._log.append(f"rewind {self.name}")

    def ready(self, operation, step, *, staged=False):
        if operation is not ops.STAGE:
            if not staged:
                self._stage(step)
            self._device.enqueue(500_000)  # what precedes must be waited for, not timed
        return self.bind(operation, step)

    def finish(self, operation):
        if operation is ops.STAGE:
            self._device.host(77_000)

    def staging(self, step):
        return lambda: self._stage(step)

    def finish_staging(self):
        self.finish(ops.STAGE)

    def _stage(self, step):
        self._device.host(1_000 * step)

    def bind(self, operation, step):
        def call():
            self._log.append(f"{self.name} {operation} {step}")
            if self._fails_at == step:
                raise RuntimeError("broken")
            share = {"compiled": 2, "direct": 4}.get(self.variant.launch_path, 1)
            self._device.host(self._host_ns * step // share)
            self._device.enqueue(self._gpu_ns)

        return call if operation is not ops.STAGE else lambda: self._stage(step)


class _Guard:
    def __init__(self, name):
        self._name = name

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, RuntimeError):
            raise ArmFailedError(self._name, error) from error
