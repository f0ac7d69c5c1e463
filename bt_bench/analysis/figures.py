"""Typical values of a case's series, and figures and lines of a calibration."""

from __future__ import annotations

from bt_bench.analysis.statistics.samples import Line, line_fit, median, step_medians
from bt_bench.results import (
    Calibration,
    CaseResult,
    FloatArray,
    Method,
    Series,
)


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
    """The line of what a method reports over the set length of a kernel, by medians per length.

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
