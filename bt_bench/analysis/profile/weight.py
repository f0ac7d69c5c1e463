"""The time that tracing adds to the calls of a step, measured on empty calls in the same turns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bt_bench.analysis.statistics.samples import median
from bt_bench.results import EmptyCalls, HostCall, Timeline, Tracing


@dataclass(frozen=True)
class Weight:
    """The cost of a kind of tracing, in µs.

    Args:
        launch_us: added to a call that enqueues something.
        ahead_us: the part of it before the enqueued operation can begin.
        call_us: added to each record of another call.
        wait_us: added to a wait for a busy device, once that is idle.
        idle_us: added to a wait for a device that is idle already.
    """

    launch_us: float
    ahead_us: float
    call_us: float
    wait_us: float
    idle_us: float

    def of(self, call: HostCall) -> float:
        """Return the time added to a call, including the calls that it makes itself."""
        if call.operation is None:
            return call.records * self.call_us
        return self.launch_us + (call.records - 1) * self.call_us

    def ahead_of(self, call: HostCall) -> float:
        """Return the time added to a call before it has enqueued anything."""
        behind = 0.0 if call.operation is None else self.launch_us - self.ahead_us
        return self.of(call) - behind


def weight_of(
    timeline: Timeline, tracing: Tracing, *, without: Collection[int] = ()
) -> Weight | None:
    """Return the cost of a kind of tracing; `None` where the empty calls were not taken.

    Args:
        timeline: with empty calls.
        tracing: the kind.
        without: turns to leave out.
    """
    found: dict[str, tuple[float, float, int]] = {}
    for name in ("launch", "query"):
        plain = timeline.empty_calls(name, Tracing.NONE)
        traced = timeline.empty_calls(name, tracing)
        if plain is None or traced is None or not plain.host_us or not traced.host_us:
            return None
        turns = traced.turns, plain.turns
        pairs = (traced.host_us, plain.host_us), (waits_of(traced), waits_of(plain))
        host, wait = (median(differences_in_turn(*pair, *turns, without=without)) for pair in pairs)
        found[name] = host, wait, traced.records
    all_launch_us, wait_us, launch_records = found["launch"]
    query_us, idle_us, query_records = found["query"]
    call_us = max(0.0, query_us / query_records)
    # The empty launch may have records beside its own.
    launch_us = max(0.0, all_launch_us - (launch_records - 1) * call_us)
    # If the device is idle earlier after the return than without tracing, part of the launch's
    # weight comes after it has enqueued the operation.
    behind_us = min(launch_us, max(0.0, -wait_us))
    return Weight(launch_us, launch_us - behind_us, call_us, max(0.0, wait_us), max(0.0, idle_us))


def differences_in_turn(
    values: Sequence[float],
    others: Sequence[float],
    turns: Sequence[int],
    of_others: Sequence[int],
    *,
    without: Collection[int] = (),
) -> list[float]:
    """Return the difference of the medians of values and others, for each turn that has both.

    From turn to turn a machine may change its speed by more than the values differ.

    Args:
        values: at least one.
        others: at least one.
        turns: the turn that each value was taken in.
        of_others: the same for the others. If no turn has both, all are taken as one turn.
        without: turns to leave out.
    """
    first, second = _by_turn(values, turns), _by_turn(others, of_others)
    both = [turn for turn in first if turn in second and turn not in without]
    if not both:
        return [median(values) - median(others)]
    return [median(first[turn]) - median(second[turn]) for turn in both]


def _by_turn(values: Sequence[float], turns: Sequence[int]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for value, turn in zip(values, turns, strict=True):
        found.setdefault(turn, []).append(value)
    return found


def waits_of(steps: EmptyCalls) -> list[float]:
    """Return the times from the return of each call until the device was idle, in µs."""
    return [step - host for step, host in zip(steps.step_us, steps.host_us, strict=True)]
