"""The metrics that can be compared: names, units, directions, and smallest differences.

A measured metric is a series under a short name: its quantity, then, after slashes, each condition
other than Triton's call on an idle device with a warm L2: `gpu_us`, `event_us/busy/cold`,
`host_us/compiled`. Times that follow each other can be summed: `host_us/direct+stage_us` is the
full cost of a step for the calling thread. Counted metrics are `launches`, `compiled_variants`,
`registers` and `spills`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from bt_bench.base.errors import UsageError, names_hint
from bt_bench.base.names import DeviceKind, Operation
from bt_bench.results.run.nouns import (
    Cache,
    Decides,
    Direction,
    LaunchPath,
    Load,
    Method,
    Quantity,
    Series,
)
from bt_bench.results.run.series import place_of, series_of

PLUS = "+"
"""Joins the terms of a sum of metrics in its name."""

DEVICE_TICK_US = 0.032
"""The tick of device clocks where it is unknown; events and CUPTI have it on H100s and H200s."""


@dataclass(frozen=True)
class Metric:
    """A metric to compare.

    Args:
        name: as in `--metric` and in reports.
        unit: unit of its values.
        direction: which way is better.
        exact: whether it is compared without statistics.
        floor: an absolute difference that counts as none, in `unit`.
        tick: tick of the clock, in `unit`; 0 if it is negligible.
        series: the measured series, unless the metric is counted or a sum.
        terms: the metrics that a sum adds up, round by round.
    """

    name: str
    unit: str
    direction: Direction = Direction.LOWER
    exact: bool = False
    floor: float = 0.0
    tick: float = 0.0
    series: Series | None = None
    terms: tuple[Metric, ...] = ()

    @property
    def is_of_device(self) -> bool:
        """Return whether it times kernels alone, which hardly depend on the host."""
        of_device = (Quantity.GPU_US, Quantity.LAST_US)
        return self.series is not None and self.series.quantity in of_device

    @property
    def is_part(self) -> bool:
        """Return whether it is part of another time, and is judged only on request."""
        return self.series is not None and self.series.quantity.traits.is_part

    @property
    def offset(self) -> float:
        """The offset added to both sides of a metric that can be zero, before taking a ratio.

        It equals the metric's floor: a change from 0 to the floor counts as a factor of two.
        """
        may_be_zero = self.series is not None and self.series.quantity.traits.may_be_zero
        return self.floor if may_be_zero else 0.0

    def is_primary(self, operation: Operation, device: DeviceKind) -> bool:
        """Return whether it decides comparisons of this operation; else it is exploratory.

        A time is primary if `Quantity` declares it as deciding, and if it is of Triton's call on an
        idle device with a warm L2, by its usual method. Counts are exact, need no statistics, and
        are always primary; sums never are.

        Args:
            operation: the timed operation.
            device: the device that it ran on.
        """
        if self.series is None:
            return not self.terms
        stages = operation.traits.on_host or device == "cpu"
        decides = Decides.STAGING if stages else Decides.LAUNCHING
        quantity = self.series.quantity
        return quantity.traits.decides is decides and self.series == series_of(quantity)


COUNTED = {
    name: Metric(name, unit, exact=True)
    for name, unit in (
        ("launches", "launches"),
        ("compiled_variants", "binaries"),
        ("registers", "registers"),
        ("spills", "bytes"),
    )
}
"""Metrics without noise, by name."""

_CONDITIONS: dict[str, type[StrEnum]] = {
    "launch_path": LaunchPath,
    "load": Load,
    "l2": Cache,
    "method": Method,
}

_DEVICE_METHODS = (Method.PROFILER, Method.EVENTS)


def method_of(quantity: Quantity, launch_path: LaunchPath) -> Method:
    """Return the method that a metric's name implies; the graph slope for kernels of a graph."""
    if quantity is Quantity.GPU_US and launch_path is LaunchPath.GRAPH:
        return Method.GRAPH_SLOPE
    return quantity.traits.method


@lru_cache(maxsize=1024)
def metric_of(series: Series) -> Metric:
    """Return the metric of a series, under its short name."""
    given = series.launch_path, series.load, series.l2, series.method
    usual = LaunchPath.JIT, Load.IDLE, Cache.HOT, method_of(series.quantity, series.launch_path)
    conditions = [each for each, default in zip(given, usual, strict=True) if each is not default]
    return Metric(
        name="/".join([series.quantity, *conditions]),
        unit="us",
        direction=series.quantity.traits.direction,
        floor=series.quantity.traits.floor_us,
        tick=DEVICE_TICK_US if series.method in _DEVICE_METHODS else 0.0,
        series=series,
    )


def with_ticks(metric: Metric, ticks: Mapping[Method, float]) -> Metric:
    """Return a metric with calibrated ticks of its clock; a method without one keeps its tick.

    Args:
        metric: a metric, or a sum.
        ticks: by method, in µs.
    """
    if not metric.tick or not ticks:
        return metric
    tick = sum(_tick(term, ticks) for term in metric.terms or (metric,))
    return replace(metric, tick=tick)


def _tick(metric: Metric, ticks: Mapping[Method, float]) -> float:
    if metric.series is None or not metric.tick:
        return metric.tick
    return ticks.get(metric.series.method, metric.tick)


@lru_cache(maxsize=1024)
def metric_named(name: str) -> Metric:
    """Return the metric of a name, as in a recording or in `--metric`; `+` joins terms of a sum.

    Raises:
        UsageError: for an unknown name, and for a sum with an empty or repeated term, or with one
            that is not a time.
    """
    if is_sum(name):
        return _sum_named(name)
    if name in COUNTED:
        return COUNTED[name]
    quantity, *conditions = name.split("/")
    if quantity not in list(Quantity):
        known = [*(member.value for member in Quantity), *COUNTED]
        raise UsageError(f"no metric {name!r}; {names_hint(quantity, known)}")
    fields: dict[str, StrEnum] = {}
    for condition in conditions:
        for field, members in _CONDITIONS.items():
            if condition in list(members):
                fields[field] = members(condition)
                break
        else:
            known = [member.value for members in _CONDITIONS.values() for member in members]
            raise UsageError(f"no metric {name!r}: {condition!r}; {names_hint(condition, known)}")
    launch_path = LaunchPath(fields.get("launch_path", LaunchPath.JIT))
    method = method_of(Quantity(quantity), launch_path)
    series: dict[str, Any] = {"quantity": Quantity(quantity), "method": method, **fields}
    return metric_of(Series(**series))


def sums_in(patterns: Sequence[str]) -> list[Metric]:
    """Return the sums among patterns of `--metric`, each once, whatever the order of its terms.

    Raises:
        UsageError: for a sum that is invalid; see `metric_named`.
    """
    return list(dict.fromkeys(metric_named(pattern) for pattern in patterns if is_sum(pattern)))


def is_sum(pattern: str) -> bool:
    """Return whether a pattern of `--metric` is a sum."""
    return PLUS in pattern


def _sum_named(name: str) -> Metric:
    names = [term.strip() for term in name.split(PLUS)]
    if not all(names):
        raise UsageError(f"metric {name!r} has an empty term; expected names of times around '+'")
    by_place: dict[tuple[int, ...], Metric] = {}
    for term in map(metric_named, names):
        if term.series is None:
            raise UsageError(f"metric {name!r}: {term.name} is counted; expected a sum of times")
        by_place[place_of(term.series)] = term
    if len(by_place) < len(names):
        raise UsageError(f"metric {name!r} has a term twice; expected each term once")
    terms = tuple(by_place[place] for place in sorted(by_place))
    return Metric(
        name=PLUS.join(term.name for term in terms),
        unit=terms[0].unit,
        direction=terms[0].direction,
        floor=max(term.floor for term in terms),
        tick=sum(term.tick for term in terms),
        terms=terms,
    )


def select(names: list[str], patterns: list[str], option: str = "--metric") -> list[str]:
    """Return the names that a pattern matches, in their order; all without patterns.

    Args:
        names: names of the existing metrics.
        patterns: names, or patterns with `*` and `?`, as in `--metric`.
        option: the option that has the patterns, for messages.

    Raises:
        UsageError: for a pattern that matches no name.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UsageError(
                f"{option} {pattern}: no such metric in this comparison; "
                f"{names_hint(pattern, names)}"
            )
    if not patterns:
        return list(names)
    return [name for name in names if any(fnmatchcase(name, p) for p in patterns)]
