"""Tracing of the Python and C calls of one step, without the cost of the tracing itself.

`sys.setprofile` calls a handler at each begin and end of a function. The handler takes several
times as long as a short function. Therefore, its cost is measured beside the step, on functions
that do nothing, and subtracted from each call. In turn, the step is timed without a handler. Any
part of that time that the tree of calls does not explain remains visible.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FrameType, FunctionType
from typing import Any

import numpy as np

from bt_bench.analysis import median
from bt_bench.base import no_collection
from bt_bench.results import HandlerCost, HostProfile
from bt_bench.worker.measuring.ports import Call, SystemClock
from bt_bench.worker.measuring.regions import host_times
from bt_bench.worker.profiling.call_tree import CallTree, Event, Repetition, builtin_name

EMPTY_CALLS = 256  # per repetition and kind
_CALLS_A_TURN = 8
MOST_NAMINGS = 20
PARTS = 4  # each without a handler and then with one, as a machine may change its speed
WARM_UP = 2  # uncounted repetitions at the start of each part with a handler


def trace_host(prepare: Callable[[], Call], synchronize: Call, *, times: int = 40) -> HostProfile:
    """Profile the host's time of a step, function by function.

    The step should make the same calls each time. Repetitions that call other functions than most
    do, such as a lazy first one, are left out and counted. Only the calling thread is traced. A
    function in C is traced if it is a builtin function or method, and everything that it does is
    its own time: a step that launches its kernel by one call of C is a single frame. A type, or
    another callable object of C, counts as its caller's own time.

    CPython 3.11 specialises no instruction while a handler is set. Code with many instructions of
    its own then takes up to twice as long, which no call explains. From 3.12 on, this applies only
    to calls.

    Args:
        prepare: gets ready for one step and returns its call; called some 100 times by default.
        synchronize: waits for the device; called after each step, and not timed.
        times: how many repetitions are timed with the handler, and as many without.

    Raises:
        ValueError: if `times` is not positive.
    """
    if times < 1:
        raise ValueError(f"{times} repetitions; expected at least 1")
    tree, clock = CallTree(), SystemClock()
    empties = _Empty(_nothing), _Empty(gc.isenabled)
    plain: list[float] = []
    repetitions: list[Repetition] = []
    for part in range(PARTS):
        count = times // PARTS + (part < times % PARTS)
        for _ in range(count):
            plain.append(_isolated(prepare, synchronize, lambda call: host_times(clock, call)[0]))
            for empty in empties:
                empty.sample_plain()
        with recording() as take:
            for number in range(WARM_UP + count if count else 0):
                events = _isolated(prepare, synchronize, take)
                for empty in empties:
                    empty.sample_traced(take)
                if number >= WARM_UP:
                    repetitions.append(tree.timed(events))
    (shape, _), *_ = Counter(each.shape for each in repetitions).most_common(1)
    kept = [each for each in repetitions if each.shape == shape]
    with recording(names=True) as take:
        for _ in range(MOST_NAMINGS):
            if tree.is_named(shape):
                break
            tree.name(_isolated(prepare, synchronize, take))
    python, c = (empty.cost() for empty in empties)
    return HostProfile(
        plain_us=median(plain),
        repetitions=len(kept),
        left_out=len(repetitions) - len(kept),
        python_call=python,
        c_call=c,
        frames=tree.frames(kept, python, c),
    )


@contextmanager
def recording(*, names: bool = False) -> Iterator[Callable[[Call], list[Event]]]:
    """Set a handler, and yield a function that makes a call and returns its events.

    The events have times in ns or, if `names` is set, the names of builtins in place of times.

    The handler stays set between calls: from CPython 3.12 on, every function is rewritten when it
    runs for the first time after a handler was set or removed.
    """
    events: list[Event] = []
    append, now_ns = events.append, time.perf_counter_ns

    # It does nothing else: returned and called objects must not live longer than without it.
    def handler(frame: FrameType, event: str, _: Any) -> None:
        append((event, frame.f_code, frame.f_lasti, now_ns()))

    def naming_handler(frame: FrameType, event: str, called: Any) -> None:
        name = builtin_name(called) if event == "c_call" else None
        append((event, frame.f_code, frame.f_lasti, name))

    def take(call: Call) -> list[Event]:
        function, given, named = _taken_apart(call)
        # `clear` would be recorded as a call.
        del events[:]
        function(*given, **named)
        return events[:]

    before = sys.getprofile()
    sys.setprofile(naming_handler if names else handler)
    try:
        yield take
    finally:
        sys.setprofile(before)


def _taken_apart(call: Call) -> tuple[Call, tuple[Any, ...], dict[str, Any]]:
    """Split a call into its function and arguments.

    Python reports a call of a builtin only if Python code makes it, and not if a partial does.
    """
    if type(call) is partial:
        return call.func, call.args, call.keywords
    return call, (), {}


def _isolated(prepare: Callable[[], Call], synchronize: Call, use: Callable[[Call], Any]) -> Any:
    """Prepare a step, pass its call to `use`, and wait for the device."""
    call = prepare()
    with no_collection(collect_first=False):
        result = use(call)
    synchronize()
    return result


# What the handler adds


def _nothing() -> None:
    pass


def _in_a_row(empty: Call, turns: range) -> None:
    """Call an empty function, often enough in a turn that the loop itself hardly counts."""
    for _ in turns:
        empty()
        empty()
        empty()
        empty()
        empty()
        empty()
        empty()
        empty()


_TURNS = range(EMPTY_CALLS // _CALLS_A_TURN)


@dataclass
class _Empty:
    """The handler's cost for calls that do nothing.

    Args:
        empty: the function to call.
    """

    empty: Call
    plain_us: list[float] = field(default_factory=list)
    within_us: list[float] = field(default_factory=list)
    between_us: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        # CPython specialises a place for the function that it calls: each kind has its own code.
        code = _in_a_row.__code__.replace()
        self._call = partial(FunctionType(code, {}), self.empty, _TURNS)

    def sample_plain(self) -> None:
        """Time the calls without a handler."""
        with no_collection(collect_first=False):
            self.plain_us.append(host_times(SystemClock(), self._call)[0] / EMPTY_CALLS)

    def sample_traced(self, take: Callable[[Call], list[Event]]) -> None:
        """Record the calls with a handler."""
        with no_collection(collect_first=False):
            events = take(self._call)
        # The first and the last event are of the function that makes the calls.
        times = [ns / 1e3 for _, _, _, ns in events[1:-1]]
        starts, ends = times[::2], times[1::2]
        # Means, as the step's own times are sums: on a busy machine some calls take far longer.
        self.within_us.append(float(np.mean(np.subtract(ends, starts))))
        self.between_us.append(float(np.mean(np.subtract(starts[1:], ends[:-1]))))

    def cost(self) -> HandlerCost:
        """Return the handler's cost: medians over the samples of a call's mean."""
        # The time of a call without the handler is the caller's, and stays there.
        around_us = max(0.0, median(self.between_us) - median(self.plain_us))
        return HandlerCost(within_us=median(self.within_us), around_us=around_us)
