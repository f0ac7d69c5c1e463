"""A clock and a device that pass time only as scripted: exact numbers in, exact numbers out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bt_bench.names import Operation
from bt_bench.worker.failures import ArmFailedError

GRAPH_LAUNCH_NS = 3_000


class ScriptedClock:
    """Time passes only where the script says so."""

    def __init__(self):
        self.ns = 0

    def now_ns(self):
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


class ScriptedTables:
    """What probes look at in an arm's tables."""

    launch_paths = ("jit", "compiled")
    capturable = frozenset({"gather_and_compute_slot_mappings"})

    def __init__(self):
        self.launch_path = "jit"
        self.num_blocks = np.zeros((1, 2), dtype=np.int32)


class ScriptedArm:
    """An arm whose calls take `host_ns` times the step, less by other paths; and `gpu_ns`."""

    def __init__(self, name, device, log, host_ns=10_000, gpu_ns=3_000, fails_at=None):
        self.name = name
        self.tables = ScriptedTables()
        self.tables.apply_staged_writes = lambda: device.host(77_000)
        self._device, self._log = device, log
        self._host_ns, self._gpu_ns, self._fails_at = host_ns, gpu_ns, fails_at

    def guarded(self):
        return _Guard(self.name)

    def rewind(self):
        self._log.append(f"rewind {self.name}")

    def ready(self, operation, step, *, staged=False):
        if operation is not Operation.STAGE:
            if not staged:
                self._stage(step)
            self._device.enqueue(500_000)  # what precedes must be waited for, not timed
        return self.bind(operation, step)

    def finish(self, operation):
        if operation is Operation.STAGE:
            self.tables.apply_staged_writes()

    def _stage(self, step):
        self._device.host(1_000 * step)

    def bind(self, operation, step):
        def call():
            self._log.append(f"{self.name} {operation} {step}")
            if self._fails_at == step:
                raise RuntimeError("broken")
            share = {"compiled": 2, "direct": 4}.get(self.tables.launch_path, 1)
            self._device.host(self._host_ns * step // share)
            self._device.enqueue(self._gpu_ns)

        return call if operation is not Operation.STAGE else lambda: self._stage(step)


class _Guard:
    def __init__(self, name):
        self._name = name

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, RuntimeError):
            raise ArmFailedError(self._name, error) from error
