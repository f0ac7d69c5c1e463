"""Spot checks of timed calls: among the rounds, at moments unknown to variants, and after them.

A check before the rounds proves little about the calls in them. A variant may do less once it has
been called often, while garbage collection is off, or below a function that reads the clock. The
calls are therefore checked in the very regions that time them, and on other contents, on which
remembered results are wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from bt_bench.base.names import Operation
from bt_bench.protocol import Workload
from bt_bench.results import LaunchPath, Reason
from bt_bench.worker.checking.check import Spoil, verify_timed
from bt_bench.worker.measuring.launch_paths import use
from bt_bench.worker.measuring.ports import Call, Clock
from bt_bench.worker.measuring.probes import Keeping, Probe
from bt_bench.worker.measuring.regions import host_times
from bt_bench.worker.measuring.rounds import ReplayWindow
from bt_bench.worker.tasks.arm import Arm
from bt_bench.worker.tasks.outcome import OnRound, told_in_parts, untold

CHANCE = 1 / 5  # of a check before a pair of rounds
SHARE_OF_TIME = 0.1  # of the rounds' time; beyond it, no further check begins


@dataclass(frozen=True)
class TimingWay:
    """A way to time calls.

    Args:
        name: for messages.
        serves: whether it can time an arm.
        make: makes a call of an arm in this way and returns its result; spoils the result before it
            makes the call again.
        around: a context that is held while calls are made.
    """

    name: str
    serves: Callable[[Arm], bool]
    make: Callable[[Arm, Operation, Call, Spoil], object]
    around: Callable[[], AbstractContextManager[object]] = nullcontext


PLAINLY = TimingWay("a plain call", lambda _: True, lambda _arm, _operation, call, _spoil: call())


def way_of(probe: Probe, operation: Operation) -> TimingWay:
    """Wrap a probe's timed call for spot checks."""
    quantities = ", ".join(dict.fromkeys(series.quantity for series in probe.series))
    path = probe.series[0].launch_path
    return TimingWay(
        f"{quantities} on {path}", lambda arm: probe.serves(arm, operation), probe.make
    )


class SpotChecks:
    """Checks of a window's arms in the regions that time them.

    Args:
        window: arms, steps and operation.
        workload: the workload that the steps were made from.
        device: where the arms are.
        clock: measures the time spent on checks.
        on_round: is called with the progress of a check, which may take far longer than the rounds.

    Attributes:
        failed: why an arm has no times, by its name.
        done: number of checks among the rounds.
    """

    def __init__(
        self,
        window: ReplayWindow,
        workload: Workload,
        device: torch.device,
        clock: Clock,
        on_round: OnRound = untold,
    ) -> None:
        self._window = window
        self._workload = workload
        self._device = device
        self._clock = clock
        self._on_round = on_round
        # Not the plan's seed, from which a variant could predict the moments.
        self._random = random.SystemRandom()
        self._spent_s = 0.0
        self._last_call: object = None
        self.failed: dict[str, Reason] = {}
        self.done = 0

    def perhaps(
        self,
        arms: Sequence[Arm],
        ways: Sequence[TimingWay],
        seconds: float,
        *,
        at_last: bool = False,
    ) -> bool:
        """Check arms in one of the ways, or decide not to.

        Args:
            arms: the arms of the instance whose rounds come next.
            ways: the ways in use for these rounds.
            seconds: time that the rounds have taken so far.
            at_last: no rounds follow, so a check is due if there was none yet.

        Returns:
            Whether the arms were checked.
        """
        late = self._spent_s > SHARE_OF_TIME * seconds
        if at_last:
            if self.done:
                return False
        elif late or self._random.random() >= CHANCE:
            return False
        started_ns = self._clock.now_ns()
        way = self._random.choice(ways)
        self._check([(arm, way) for arm in arms], "among the timed rounds")
        self.done += 1
        self._spent_s += (self._clock.now_ns() - started_ns) / 1e9
        return True

    def all(self, ways: Sequence[TimingWay], alone: Sequence[TimingWay]) -> None:
        """Check every instance, and every arm in every way.

        Args:
            ways: the ways that instances take in turn; an arm that lacks one is called plainly.
            alone: the ways for the first instance only, since they take long to begin.
        """
        instances = self._window.instances
        ways = ways or [PLAINLY]
        for first in range(0, len(ways), len(instances)):
            pairs = [
                (arm, ways[(first + place) % len(ways)])
                for place, arms in enumerate(instances)
                for arm in arms
            ]
            self._check(pairs, "after timing")
        for way in alone:
            with way.around():
                self._check([(arm, way) for arm in instances[0]], "after timing")
        for arms in instances:
            for arm in arms:
                use(arm, LaunchPath.JIT)

    def _check(self, pairs: Sequence[tuple[Arm, TimingWay]], where: str) -> None:
        ways = {arm: way if way.serves(arm) else PLAINLY for arm, way in pairs}
        window = self._window
        steps = len(pairs) * len(window.steps)
        found = verify_timed(
            list(ways),
            window.steps,
            self._workload,
            window.operation,
            self._device,
            where=lambda arm: f"{where} (as for {ways[arm].name})",
            through=lambda arm, spoil: partial(self._through, arm, ways[arm], spoil),
            tell=told_in_parts(self._on_round, f"checking {where}", steps),
        )
        self.failed = found | self.failed

    def _through(
        self,
        arm: Arm,
        way: TimingWay,
        spoil: Spoil,
        _variant: Any,
        operation: Operation,
        call: Call,
    ) -> object:
        """Make the timed call of a step in a way, its staging as when timed, others plainly."""
        # Timing code holds the call too: work that would run when the call is freed must not run
        # yet.
        self._last_call = call
        if operation == self._window.operation:
            return way.make(arm, operation, call, spoil)
        if not operation.traits.on_host:
            return call()
        kept = Keeping(call)
        host_times(self._clock, kept.call)
        return kept.result
