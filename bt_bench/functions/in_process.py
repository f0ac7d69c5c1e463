"""`bt_bench.bench`: callables timed in this process, in turn, for a notebook or a test.

Sweeps use the same timed regions and statistics. They also run functions in a process of their own,
on inputs that change, and check them. A call in this process cannot offer that.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from bt_bench.base import format_factors, format_number
from bt_bench.base.errors import UsageError
from bt_bench.base.extras import needing_run
from bt_bench.functions.returned import compare_first_calls

if TYPE_CHECKING:
    from bt_bench.worker.measuring.ports import Clock, DevicePort

CONFIDENCE = 0.95
FEWEST_ROUNDS = 10
_SAMPLE_US = 1000.0  # how long the calls of one function take in a round, where they are short
_MOST_CALLS = 25
_WARM_UP_CALLS = 5
_QUEUE_US = 300.0
_NO_GPU = "There is no GPU: these are times of code on the CPU. They say nothing about a GPU."
_SHARED = (
    "Isolation: none. The functions share this process and its memory allocator{}. Inputs stay as "
    "they are, and timed calls are not checked: a function that remembers its result, or leaves "
    "work to a thread, another stream or the next call, looks fast here. A file of functions "
    "rejects these (docs/functions.md)."
)


class Times(StrEnum):
    """A time of a call, in µs."""

    HOST = "host_us"
    """Until the call returns."""
    STEP = "step_us"
    """Until the device is idle."""
    DEVICE = "device_us"
    """Added by the call on a busy device, by events on the current stream."""


_WHERE = {Times.HOST: "on the host", Times.STEP: "until idle", Times.DEVICE: "on the device"}


class Outcome(StrEnum):
    """The outcome of a comparison of a function with the first one."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class Comparison:
    """A function against the first one, by one time.

    Args:
        name: the function.
        against: the first function.
        times: the time that is compared.
        speedup: time of the first function over the time of this one.
        low: lower end of the interval of the speed-up, at a confidence of 95 %.
        high: its upper end.
        margin: change that counts as none, as a share: 1.5 %, or more where the first function,
            measured twice, differed from itself.
        outcome: whether the interval lies beyond the margin, within it, or on both sides.
    """

    name: str
    against: str
    times: Times
    speedup: float
    low: float
    high: float
    margin: float
    outcome: Outcome

    def text(self, where: str) -> str:
        """Return it in words.

        Args:
            where: where the time passes, such as `on the host`.
        """
        interval = "–".join(format_factors(self.low, self.high))
        if self.outcome is Outcome.SAME:
            return f"the same {where} ({interval})"
        if self.outcome is Outcome.UNCLEAR:
            return f"not resolved {where} ({interval} × as fast)"
        ends = self.speedup, self.low, self.high
        if self.outcome is Outcome.SLOWER:
            ends = 1 / self.speedup, 1 / self.high, 1 / self.low
        factor, *interval_texts = format_factors(*ends)
        return f"{factor} × {self.outcome} ({'–'.join(interval_texts)}) {where}"


@dataclass(frozen=True)
class Bench:
    """Times of functions; it prints as a few lines of text.

    Args:
        device: the GPU's name; `None`: there is none, and the times are of code on the CPU.
        rounds: number of rounds; each function takes its turn in each.
        samples: by time and by function: the value of each round in µs.
        comparisons: all functions but the first against it, by each time.
        results: how the results of the first calls compare, in words.
        conditions: settings and tools of this process that change times, a sentence each.
    """

    device: str | None
    rounds: int
    samples: Mapping[Times, Mapping[str, Sequence[float]]]
    comparisons: tuple[Comparison, ...]
    results: str = ""
    conditions: tuple[str, ...] = ()

    @property
    def isolation(self) -> str:
        """Say how far the functions were isolated from each other."""
        return _SHARED.format("" if self.device is None else ", its CUDA context and stream")

    def median_us(self, name: str, times: Times = Times.HOST) -> float:
        """Return the median over the rounds, in µs.

        Raises:
            KeyError: if there is no such function, or no such time.
        """
        ordered = sorted(self.samples[times][name])
        middle = len(ordered) // 2
        return (ordered[middle] + ordered[~middle]) / 2

    def comparison(self, name: str, times: Times = Times.HOST) -> Comparison:
        """Return the comparison of a function with the first one.

        Raises:
            KeyError: if there is none.
        """
        for each in self.comparisons:
            if (each.name, each.times) == (name, times):
                return each
        known = ", ".join(f"{each.name!r}, {str(each.times)!r}" for each in self.comparisons)
        raise KeyError(f"{name!r}, {str(times)!r}: no such comparison; expected one of {known}")

    def __str__(self) -> str:
        """Return verdicts, times and their limits, a line each."""
        return "\n".join(self._lines())

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        names = list(self.samples[Times.HOST])
        told = [Times.HOST] if self.device is None else [Times.HOST, Times.DEVICE]
        for name in names[1:]:
            where = {Times.HOST: "on this CPU"} if self.device is None else _WHERE
            found = (self.comparison(name, times).text(where[times]) for times in told)
            yield f"{name} is {', '.join(found)}"
        yield self.results
        for name in names:
            medians = (
                f"{format_number(self.median_us(name, times))} µs {_WHERE[times]}"
                for times in self.samples
                if self.device is not None
            )
            on_cpu = f"{format_number(self.median_us(name))} µs on this CPU"
            yield f"{name}: {on_cpu if self.device is None else ', '.join(medians)}"
        on = _NO_GPU if self.device is None else f"On {self.device}."
        yield from (f"Warning: {text}." for text in self.conditions)
        yield f"Medians of {self.rounds} rounds, in which all take turns. {on}"
        yield self.isolation


@needing_run
def bench(
    functions: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 60,
    seconds: float = 10.0,
    seed: int = 0,
) -> Bench:
    """Time functions in this process, and compare all others with the first one.

    Each round times every function: until the call returns, until the GPU is idle, and on the GPU
    alone, behind a queue that hides the host. The order is drawn for each pair of rounds, and
    reversed in its second round. Without a GPU, only the time until the call returns is taken, of
    whatever the functions do on the CPU. Meanwhile nothing traces the calls, such as a debugger or
    the measurement of coverage, and no garbage is collected.

    Args:
        functions: callables without arguments, by name; the first is compared with.
        rounds: rounds to take, at least 10.
        seconds: time after which no further round begins, once there are 10.
        seed: of the order.

    Raises:
        UsageError: naming what is wrong with an argument, or a function that returns before its
            work is done, such as a coroutine.
        Exception: whatever a function raises.
    """
    _refuse_unfit(functions, rounds)
    from bt_bench.base import no_collection
    from bt_bench.results import condition_texts
    from bt_bench.worker.machine.conditions import read_conditions
    from bt_bench.worker.measuring.ports import CudaPort, SystemClock

    torch = _torch()
    port = CudaPort() if torch.cuda.is_available() else None
    results = compare_first_calls(functions, port.synchronize if port else lambda: None)
    timer = _Timer(SystemClock(), port)
    rng = random.Random(seed)
    first = next(iter(functions))
    # The first function once more: its difference from itself limits what can be told.
    arms = [*functions.items(), (first, functions[first])]
    rows: dict[Times, list[list[float]]] = {times: [[] for _ in arms] for times in timer.times}
    done = 0
    with no_collection(), _untraced():
        calls = [timer.warmed_up(function) for _, function in arms]
        begun_ns = timer.clock.now_ns()
        while done < rounds:
            if done >= FEWEST_ROUNDS and timer.clock.now_ns() - begun_ns > seconds * 1e9:
                break
            order = rng.sample(range(len(arms)), len(arms))
            for turn in (order, order[::-1]):
                for place in turn:
                    for times, value in timer.sample(arms[place][1], calls[place]).items():
                        rows[times][place].append(value)
            done += 2
    comparisons = tuple(
        _comparison(name, first, times, values[0], values[place], values[-1])
        for place, name in enumerate(functions)
        for times, values in rows.items()
        if place
    )
    samples = {
        times: dict(zip(functions, values[:-1], strict=True)) for times, values in rows.items()
    }
    device = None if port is None else str(torch.cuda.get_device_name())
    # Not refused: a test may run under a tool for coverage, and look at what is equal.
    conditions = tuple(condition_texts(read_conditions("cpu" if port is None else "cuda")))
    return Bench(device, done, samples, comparisons, results, conditions)


@contextmanager
def _untraced() -> Iterator[None]:
    """Suspend the hooks of debuggers, coverage and profilers, called for each line or function.

    It takes longer than a short call, and longest in the function with the most lines.
    """
    monitoring: Any = getattr(sys, "monitoring", None)  # since Python 3.12
    tools = [] if monitoring is None else [t for t in range(6) if monitoring.get_tool(t)]
    events = [(tool, monitoring.get_events(tool)) for tool in tools]
    trace, profile = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    for tool in tools:
        monitoring.set_events(tool, 0)
    try:
        yield
    finally:
        for tool, before in events:
            monitoring.set_events(tool, before)
        sys.setprofile(profile)
        sys.settrace(trace)


def _refuse_unfit(functions: Mapping[str, Callable[[], object]], rounds: int) -> None:
    if not isinstance(functions, Mapping) or len(functions) < 2:
        raise UsageError(
            f"bench takes {functions!r}; expected two or more functions by name, as in "
            'bench({"torch": f, "mine": g})'
        )
    for name, function in functions.items():
        if not isinstance(name, str) or not callable(function):
            raise UsageError(
                f"bench has {function!r} as {name!r}; expected a callable without arguments"
            )
    if rounds < FEWEST_ROUNDS:
        raise UsageError(f"rounds is {rounds}; expected {FEWEST_ROUNDS} or more")


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise UsageError("bench needs torch; install bt-bench[run]") from None
    return torch


class _Timer:
    """Takes the times of one function in one round."""

    def __init__(self, clock: Clock, port: DevicePort | None) -> None:
        self.clock = clock
        self._port = port
        self.times = [Times.HOST] if port is None else list(Times)

    def warmed_up(self, function: Callable[[], object]) -> int:
        """Call a function until it is warm; return the number of its calls in a round."""
        from bt_bench.worker.measuring.regions import host_times

        took = [host_times(self.clock, function, self._wait)[1] for _ in range(_WARM_UP_CALLS)]
        return max(1, min(_MOST_CALLS, round(_SAMPLE_US / max(min(took), 0.1))))

    def _wait(self) -> None:
        if self._port is not None:
            self._port.synchronize()

    def sample(self, function: Callable[[], object], calls: int) -> Mapping[Times, float]:
        """Return the mean of the faster calls, by each time, in µs."""
        from bt_bench.analysis import faster_mean
        from bt_bench.worker.measuring.regions import host_times

        self._wait()
        took = [host_times(self.clock, function, self._wait) for _ in range(calls)]
        found = {Times.HOST: faster_mean([host for host, _ in took])}
        if self._port is not None:
            found[Times.STEP] = faster_mean([step for _, step in took])
            on_device = [self._on_device(self._port, function) for _ in range(calls)]
            found[Times.DEVICE] = faster_mean(on_device)
        return found

    def _on_device(self, port: DevicePort, function: Callable[[], object]) -> float:
        from bt_bench.worker.measuring.regions import (
            LONGEST_QUEUE_US,
            between_events,
            outlasted,
            queue_ahead,
        )

        queue_us = _QUEUE_US
        while True:
            queue_ahead(port, queue_us)
            between_events(port, function)
            # A function that waits for the device cannot be hidden from it.
            if outlasted(port) or queue_us >= LONGEST_QUEUE_US:
                return port.elapsed_us()
            queue_us *= 2


def _comparison(
    name: str,
    against: str,
    times: Times,
    first: Sequence[float],
    this: Sequence[float],
    again: Sequence[float],
) -> Comparison:
    """Compare the values of the rounds, pair by pair, by the trimmed mean of their log ratios."""
    from bt_bench.analysis import GATE_MARGIN
    from bt_bench.analysis.statistics.estimates import ratio_of

    change = _estimate(first, this)
    itself = _estimate(first, again)
    interval = change.interval(CONFIDENCE)
    reach = itself.interval(CONFIDENCE)
    # As in a gate: by how much one function differs from itself, beyond what noise explains.
    beyond = max(0.0, reach.low, -reach.high)
    margin = max(GATE_MARGIN, math.expm1(beyond))
    low, high = ratio_of(interval.low), ratio_of(interval.high)
    if low > 1 + margin:
        outcome = Outcome.FASTER
    elif high < 1 / (1 + margin):
        outcome = Outcome.SLOWER
    elif low > 1 / (1 + margin) and high < 1 + margin:
        outcome = Outcome.SAME
    else:
        outcome = Outcome.UNCLEAR
    return Comparison(name, against, times, ratio_of(change.location), low, high, margin, outcome)


def _estimate(first: Sequence[float], other: Sequence[float]) -> Any:
    import numpy as np

    from bt_bench.analysis.statistics.estimates import trimmed_estimate

    tick = 1e-3  # µs: of the clock, which may read zero for an empty function
    one, two = (np.maximum(np.asarray(values), tick) for values in (first, other))
    estimate = trimmed_estimate(np.log(one) - np.log(two))
    assert estimate is not None  # there are enough rounds
    return estimate
