"""The harness's promises about its own measurements, judged by a calibration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bt_bench.analysis.figures import MethodLine, method_lines
from bt_bench.analysis.statistics.samples import median, percentile
from bt_bench.base import format_number, format_percent
from bt_bench.results import Calibration, Injection, Method, Quantity

DEVICE_METHODS = (Method.PROFILER, Method.GRAPH_SLOPE)
METHOD_TITLES = {
    Method.PROFILER: "profiler",
    Method.GRAPH_SLOPE: "graph slope",
    Method.EVENTS: "events",
    Method.HOST_CLOCK: "host clock",
}

# A profiler that stays attached has been seen to add 2 µs to the replay of a graph.
MOST_PROFILED_US = 1.0
LARGEST_EMPTY_CALL_US = 0.1
GRADIENT_TOLERANCE = 0.01
LARGEST_APART_PERCENT = 3.0
DELAY_TOLERANCE = 0.1  # share of the delay, for quantities that must show it
UNMOVED_SHARE = 0.02  # share of the delay, for quantities that must not show it
COLD_PERCENTILE = 95

_NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Promise:
    """A promise, and whether it is kept.

    Args:
        name: for programs.
        promise: its text.
        found: the measured value, as text.
        kept: whether the promise holds; `False` if it was not measured.
    """

    name: str
    promise: str
    found: str
    kept: bool

    @property
    def finding(self) -> str:
        """The promise with the measured value."""
        return f"{self.promise}; found {self.found}"


def apart_percent(lines: Sequence[MethodLine]) -> dict[float, float]:
    """Return the relative difference of methods without intercepts, in percent, by length.

    It is the largest minus the smallest, relative to the smallest, for lengths that all methods
    reported.
    """
    corrected = [line.corrected_us for line in lines]
    apart = {}
    for length_us in corrected[0] if corrected else ():
        values = [of_method[length_us] for of_method in corrected if length_us in of_method]
        if len(values) == len(corrected) > 1 and min(values) > 0:
            apart[length_us] = 100 * (max(values) / min(values) - 1)
    return apart


def judge_promises(calibration: Calibration, *, profiles: bool = True) -> list[Promise]:
    """Return a verdict per promise; without a GPU only the empty call is judged.

    Args:
        calibration: the measurements.
        profiles: whether anything was to be profiled; if not, promises about it are left out.
    """
    verdicts = [_empty_call(calibration)]
    if calibration.samples("synchronize") is not None:
        verdicts += _lines(calibration)
        verdicts.append(_chains(calibration))
        verdicts += _delay(calibration.injection)
        verdicts.append(_cold(calibration))
        verdicts.append(_profiled(calibration))
    return [verdict for verdict in verdicts if profiles or verdict.name not in _OF_PROFILER]


def missed_promises(calibration: Calibration) -> list[Promise]:
    """Return the promises that a machine does not keep.

    Args:
        calibration: the measurements.
    """
    return [each for each in judge_promises(calibration) if not each.kept]


_OF_PROFILER = (
    *(f"gradient_{Method.PROFILER.value}", "agreement", "chains"),
    *(f"delay_{Quantity.GPU_US.value}", "profiled"),
)


def _empty_call(calibration: Calibration) -> Promise:
    samples = calibration.samples("empty_call")
    value_us = median(samples) if samples else None
    return Promise(
        "empty_call",
        f"the harness adds less than {LARGEST_EMPTY_CALL_US} µs to host times",
        _NOT_MEASURED if value_us is None else f"{format_number(value_us)} µs",
        value_us is not None and value_us < LARGEST_EMPTY_CALL_US,
    )


def _lines(calibration: Calibration) -> Iterator[Promise]:
    lines = method_lines(calibration)
    for method in DEVICE_METHODS:
        found = lines.get(method)
        gradient = found.line.gradient if found else None
        yield Promise(
            f"gradient_{method.value}",
            f"{METHOD_TITLES[method]}: the slope over known kernel lengths is "
            f"1 ± {100 * GRADIENT_TOLERANCE:.0f} %",
            _NOT_MEASURED if gradient is None else f"{gradient:.4f}",
            gradient is not None and abs(gradient - 1) <= GRADIENT_TOLERANCE,
        )
    names = " and ".join(METHOD_TITLES[method] for method in DEVICE_METHODS)
    apart = apart_percent([lines[method] for method in DEVICE_METHODS if method in lines])
    widest = max(apart.values(), default=None)
    yield Promise(
        "agreement",
        f"{names} agree within {LARGEST_APART_PERCENT:.0f} %, offsets removed",
        _NOT_MEASURED if widest is None else f"{format_percent(widest)} % apart",
        widest is not None and widest <= LARGEST_APART_PERCENT,
    )


def _chains(calibration: Calibration) -> Promise:
    chains = calibration.chains
    found = ", ".join(f"{chain.counted} of {chain.launched}" for chain in chains)
    return Promise(
        "chains",
        "every launch in a chain of empty kernels is counted",
        found or _NOT_MEASURED,
        bool(chains) and all(chain.counted == chain.launched for chain in chains),
    )


def _delay(injection: Injection | None) -> Iterator[Promise]:
    for quantity in (Quantity.HOST_US, Quantity.STEP_US, Quantity.GPU_US):
        moved_us = None if injection is None else moved_by_delay_us(injection, quantity)
        if quantity is Quantity.GPU_US:
            added, expected_share, tolerance = "nothing", 0.0, UNMOVED_SHARE
        else:
            added, expected_share, tolerance = "as much", 1.0, DELAY_TOLERANCE
        wait = "wait" if injection is None else f"{format_number(injection.delay_us, 2)} µs wait"
        promise = f"a {wait} on the host adds {added} to {quantity.value}, "
        promise += f"± {100 * tolerance:.0f} %"
        found, kept = _NOT_MEASURED, False
        if injection is not None and moved_us is not None:
            off_us = abs(moved_us - expected_share * injection.delay_us)
            kept = off_us <= tolerance * injection.delay_us
            found = f"{format_number(moved_us)} µs"
        yield Promise(f"delay_{quantity.value}", promise, found, kept)


def moved_by_delay_us(injection: Injection, quantity: Quantity) -> float | None:
    """Return the median with the delay minus the median without; `None` if one is missing."""
    without, delayed = injection.without.get(quantity), injection.with_delay.get(quantity)
    return median(delayed) - median(without) if without and delayed else None


def _cold(calibration: Calibration) -> Promise:
    flush = calibration.flush
    name, promise = "cold", "a read is slower after an L2 flush than from the L2"
    if flush is None or not flush.hot or not flush.cold:
        return Promise(name, promise, _NOT_MEASURED, False)
    cold_us = median(flush.cold)
    return Promise(
        name,
        promise,
        f"{format_number(cold_us)} µs, from the L2 {format_number(median(flush.hot))} µs",
        cold_us > percentile(flush.hot, COLD_PERCENTILE),
    )


def _profiled(calibration: Calibration) -> Promise:
    promise = f"a launch costs the same after profiling, ± {MOST_PROFILED_US:g} µs"
    before = calibration.samples("replay")
    after = calibration.samples("replay_profiled")
    if not before or not after:
        return Promise("profiled", promise, _NOT_MEASURED, False)
    times_us = median(before), median(after)
    return Promise(
        "profiled",
        promise,
        f"{format_number(times_us[1])} µs, before it {format_number(times_us[0])} µs",
        abs(times_us[1] - times_us[0]) <= MOST_PROFILED_US,
    )
