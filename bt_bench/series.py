"""Names of series, their figures in a case, and those of a calibration."""

from __future__ import annotations

from bt_bench.model import (
    Cache,
    Calibration,
    CaseResult,
    LaunchPath,
    Load,
    Method,
    Quantity,
    Series,
)
from bt_bench.stats import FloatArray, Line, line_fit, median, step_medians

METHODS: dict[Quantity, Method] = {
    Quantity.HOST_US: Method.HOST_CLOCK,
    Quantity.STAGE_US: Method.HOST_CLOCK,
    Quantity.GPU_US: Method.PROFILER,
    Quantity.SPAN_US: Method.PROFILER,
    Quantity.GAP_US: Method.PROFILER,
    Quantity.LAST_US: Method.PROFILER,
    Quantity.STEP_US: Method.HOST_CLOCK,
    Quantity.PIPELINED_US: Method.HOST_CLOCK,
    Quantity.EVENT_US: Method.EVENTS,
}
"""What takes each quantity, unless a series says otherwise."""

_PLACES = {
    member: place
    for members in (Quantity, LaunchPath, Load, Cache, Method)
    for place, member in enumerate(members)
}


def series_of(
    quantity: Quantity,
    *,
    launch_path: LaunchPath = LaunchPath.JIT,
    load: Load = Load.IDLE,
    l2: Cache = Cache.HOT,
    method: Method | None = None,
) -> Series:
    """The series of a quantity: by default of Triton's call, on an idle device with a warm L2."""
    return Series(
        quantity=quantity,
        method=method or METHODS[quantity],
        launch_path=launch_path,
        load=load,
        l2=l2,
    )


def place_of(series: Series) -> tuple[int, ...]:
    """Key to sort series by: quantity, then launch path, load, L2 and method."""
    parts = (series.quantity, series.launch_path, series.load, series.l2, series.method)
    return tuple(_PLACES[part] for part in parts)


def step_medians_of(case: CaseResult, series: Series) -> FloatArray | None:
    """Per step of the window the median over rounds, or one value for the window as a whole.

    Returns:
        `None` where the series was not taken.
    """
    measurement = case.measurement(series)
    medians = None if measurement is None else step_medians(measurement.samples)
    return medians if medians is not None and medians.size else None


def typical_us(case: CaseResult, series: Series) -> float | None:
    """Median over the steps of a case of each step's median over rounds."""
    medians = step_medians_of(case, series)
    return None if medians is None else median(medians)


def figure_us(calibration: Calibration | None, name: str) -> float | None:
    """Median of a calibration's figure, or `None` where it was not taken."""
    samples = calibration.samples(name) if calibration else None
    return median(samples) if samples else None


def method_line(calibration: Calibration | None, method: Method) -> Line | None:
    """What a method reports against the set length of a kernel, by medians per length.

    Returns:
        `None` where it was not calibrated, or at fewer than two lengths.
    """
    for line in calibration.lines if calibration else ():
        if line.method is method:
            points = [
                (length, median(samples))
                for length, samples in zip(line.set_us, line.reported_us, strict=True)
                if samples
            ]
            if len({length for length, _ in points}) >= 2:
                return line_fit([x for x, _ in points], [y for _, y in points])
    return None
