"""The tick of a device's clocks: the step that its times are multiples of.

It differs by GPU and by method: events and the profiler's records are stamped with 32 ns by H100s
and H200s, and with 1.024 µs by some others. So it is read off times that were taken, and assumed
only where there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from bt_bench.results import Calibration, Method

_NOISE_NS = 3.0
"""By how much the difference of two times is off: the profiler converts stamps to another clock,
which moves each of them by 1 ns at most, and times are stored to 1 ns."""

_FEWEST_TIMES = 30
"""Of fewer, the gaps are often multiples of a step that is larger than the tick."""

FINEST_US = 0.001
"""The step of all times that are stored: no finer tick can be seen."""

_OF_METHODS = {
    Method.EVENTS: ("event_floor", "event_floor_busy", "event_null_busy"),
    Method.PROFILER: ("null_gpu",),
}


def tick_of(times_us: Iterable[float]) -> float | None:
    """Return the largest step in µs that all differences of times are multiples of.

    Few times, and times that are all alike, show none.

    Args:
        times_us: times by one clock, in µs.

    Returns:
        The tick, `FINEST_US` if it is no larger than the noise of stamps, or `None` if unknown.
    """
    taken = [round(time_us * 1e3, 1) for time_us in times_us]
    if len(taken) < _FEWEST_TIMES:
        return None
    values = sorted(set(taken))
    groups = [values[:1]] if values else []
    for before, value in pairwise(values):
        if value - before > _NOISE_NS:
            groups.append([])
        groups[-1].append(value)
    if any(group[-1] - group[0] > 2 * _NOISE_NS for group in groups):
        return FINEST_US
    middles = [(group[0] + group[-1]) / 2 for group in groups]
    if len(middles) < 2:
        return None
    gaps = [after - before for before, after in pairwise(middles)]
    # The smallest one is too small by noise; those like it are as often too large.
    alike = [gap for gap in gaps if gap <= min(gaps) + 2 * _NOISE_NS]
    step: float | None = sum(alike) / len(alike)
    lengths = [middle - middles[0] for middle in middles[1:]]
    while step is not None and step > 3 * _NOISE_NS:
        refined, step = _multiples(lengths, step)
        if step is None:
            return round(refined / 1e3, 6)
    return FINEST_US


def _multiples(lengths: Sequence[float], step: float) -> tuple[float, float | None]:
    """Return a step more exactly, and a smaller one to try if lengths are no multiples of it.

    A length of k steps bounds the error of the step by a k-th of the noise, so short lengths make
    it exact enough to count the steps in longer ones. A length that is still too long is left out.

    Args:
        lengths: in ns, in ascending order.
        step: in ns.
    """
    error = _NOISE_NS
    for length in lengths:
        count = max(1, round(length / step))
        allowed = _NOISE_NS + count * error
        if allowed >= step / 2:
            continue
        rest = abs(length - count * step)
        if rest > allowed:
            return step, rest
        if _NOISE_NS / count < error:
            step, error = length / count, _NOISE_NS / count
    return step, None


def device_ticks(calibration: Calibration | None) -> dict[Method, float]:
    """Return the ticks that a calibration shows, by method; a method without one is absent."""
    ticks = {}
    for method, names in _OF_METHODS.items() if calibration is not None else ():
        assert calibration is not None
        times = [time for name in names for time in calibration.samples(name) or ()]
        for line in calibration.lines:
            if line.method is method:
                times += [time for reported in line.reported_us for time in reported]
        if (tick := tick_of(times)) is not None:
            ticks[method] = tick
    return ticks


def largest_ticks(each: Iterable[Mapping[Method, float]]) -> dict[Method, float]:
    """Return the largest tick of each method."""
    ticks: dict[Method, float] = {}
    for of_one in each:
        for method, tick in of_one.items():
            ticks[method] = max(tick, ticks.get(method, 0.0))
    return ticks
