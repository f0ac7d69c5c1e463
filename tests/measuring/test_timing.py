"""The timing loop with a scripted clock and device: exact numbers in, exact numbers out."""

from __future__ import annotations

import gc
import random
from contextlib import contextmanager

import pytest

from bt_bench.arms import Arm, ArmFailedError
from bt_bench.measuring.nvtx_ranges import Range
from bt_bench.measuring.probes import EventProbe, HostProbe, StageProbe
from bt_bench.measuring.timing import Window, measure
from bt_bench.model import Operation, Plan, Quantity


class ScriptedClock:
    """Time passes only where the script says so."""

    def __init__(self):
        self.ns = 0

    def now_ns(self):
        return self.ns


class ScriptedDevice:
    """A device that is busy for what was enqueued until it is waited for."""

    def __init__(self, clock, log):
        self.clock = clock
        self.log = log
        self.pending_ns = 0
        self.events = []

    def synchronize(self):
        self.clock.ns += self.pending_ns
        self.pending_ns = 0

    def record_start(self):
        self.events = [self.clock.ns]

    def record_end(self):
        self.events.append(self.clock.ns + self.pending_ns)

    def elapsed_us(self):
        start, end = self.events
        return (end - start) / 1e3


class ScriptedArm:
    """An arm whose operations take set times: staging 1 µs, calls `host_ns` and `gpu_ns`."""

    def __init__(self, name, clock, device, log, host_ns, gpu_ns, fails_at=None):
        self.name = name
        self.tables = self
        self._clock, self._device, self._log = clock, device, log
        self._host_ns, self._gpu_ns, self._fails_at = host_ns, gpu_ns, fails_at

    @contextmanager
    def guarded(self):
        try:
            yield
        except RuntimeError as error:
            raise ArmFailedError(self.name, error) from error

    def rewind(self):
        self._log.append(f"rewind {self.name}")

    def stage(self, step):
        self._clock.ns += 1_000 * step

    def prepare(self, operation):
        self._device.pending_ns += 500_000  # what precedes must be waited for, not timed

    def apply_staged_writes(self):
        self._clock.ns += 77_000

    def bind(self, operation, step):
        def call():
            self._log.append(f"{self.name} {operation} {step}")
            if self._fails_at == step:
                raise RuntimeError("broken")
            self._clock.ns += self._host_ns * step
            self._device.pending_ns += self._gpu_ns

        return call if operation is not Operation.STAGE else lambda: self.stage(step)


@pytest.fixture
def bench():
    log = []
    clock = ScriptedClock()
    device = ScriptedDevice(clock, log)
    return log, clock, device


def window(bench, *names, instances=1, fails_at=None, operation=Operation.STEP):
    log, clock, device = bench
    arms = [
        [
            ScriptedArm(f"{name}", clock, device, log, 10_000 + 5_000 * i, 3_000, fails_at)
            for i, name in enumerate(names)
        ]
        for _ in range(instances)
    ]
    return Window("case", arms, [1, 2], operation)


def test_exact_samples(bench):
    _log, clock, device = bench
    probes = [HostProbe(clock, device), EventProbe(device)]
    plan = Plan(rounds=3, warmup_rounds=1)
    result = measure(window(bench, "a", "b"), probes, plan, lambda done: None)
    samples = {(n, m.quantity): m.samples for n, ms in result.items() for m in ms}
    assert samples["a", Quantity.STAGE_US] == [[1.0, 2.0]] * 3
    assert samples["a", Quantity.HOST_US] == [[10.0, 20.0]] * 3
    assert samples["b", Quantity.HOST_US] == [[15.0, 30.0]] * 3
    assert samples["b", Quantity.STEP_US] == [[18.0, 33.0]] * 3
    assert samples["b", Quantity.EVENT_US] == [[18.0, 33.0]] * 3


def test_arms_follow_each_other_within_a_step_and_orders_are_reversed(bench):
    log, clock, _device = bench
    plan = Plan(rounds=2, warmup_rounds=0, seed=4)
    probe = HostProbe(clock, bench[2])
    measure(window(bench, "a", "b", "c"), [probe], plan, lambda done: None)
    calls = [line.split() for line in log if "rewind" not in line]
    first, second = calls[:6], calls[6:]
    assert [step for _, _, step in first] == ["1", "1", "1", "2", "2", "2"]
    order = [name for name, _, step in first if step == "1"]
    assert sorted(order) == ["a", "b", "c"]
    assert [name for name, _, step in first if step == "2"] == order
    assert [name for name, _, step in second if step == "1"] == order[::-1]


def test_state_is_rewound_once_per_replay(bench):
    log, clock, _device = bench
    probe = HostProbe(clock, bench[2])
    measure(window(bench, "a"), [probe], Plan(rounds=2, warmup_rounds=1), lambda done: None)
    assert log.count("rewind a") == 3


def test_instances_take_turns():
    arms = [[object(), object()] for _ in range(3)]
    orders = Window("case", arms, [], Operation.STEP).orders(random.Random(0))
    instances = [next(i for i, a in enumerate(arms) if set(a) == set(next(orders))) for _ in "123"]
    assert instances == [0, 0, 1] or len(set(instances)) >= 2
    orders = Window("case", arms, [], Operation.STEP).orders(random.Random(0))
    seen = [
        next(i for i, a in enumerate(arms) if a[0] in order)
        for order, _ in zip(orders, "1" * 7, strict=False)
    ]
    assert seen == [0, 0, 1, 1, 2, 2, 0]


def test_staging_alone(bench):
    _log, clock, _device = bench
    result = measure(window(bench, "a"), [StageProbe(clock)], Plan(rounds=1), lambda done: None)
    (measurement,) = result["a"]
    assert measurement.samples == [[1.0, 2.0]]


def test_rounds_are_reported(bench):
    done = []
    probe = StageProbe(bench[1])
    measure(window(bench, "a"), [probe], Plan(rounds=3, warmup_rounds=0), done.append)
    assert done == [1, 2, 3]


def test_a_failing_arm_is_named_and_collection_is_on_again(bench):
    _log, clock, device = bench
    with pytest.raises(ArmFailedError) as caught:
        measure(
            window(bench, "a", fails_at=2),
            [HostProbe(clock, device)],
            Plan(rounds=1, warmup_rounds=0),
            lambda done: None,
        )
    assert caught.value.arm == "a"
    assert caught.value.reason().message.startswith("while measured: RuntimeError: broken")
    assert gc.isenabled()


def test_range_names_have_no_slash():
    region = Range("fused", "step", "a/b")
    region.push()
    region.pop()
    assert "/" not in ".".join(("fused", "step", "a/b")).replace("/", "_")


def test_arm_says_which_variant_failed_to_build():
    class Broken:
        def __init__(self, layout, device):
            raise RuntimeError("no memory for you")

    class Workload:
        layout = None
        setup = ()

    with pytest.raises(ArmFailedError, match="broken: no memory for you"):
        Arm("broken", Broken, Workload(), "cpu")
