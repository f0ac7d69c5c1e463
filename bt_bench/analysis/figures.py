"""Typical values of a case's series, and figures and lines of a calibration."""

from __future__ import annotations

from dataclasses import dataclass

from bt_bench.analysis.statistics.samples import Line, line_fit, median, step_medians
from bt_bench.results import (
    Calibration,
    CaseResult,
    FloatArray,
    Method,
    Series,
)


def step_medians_of(case: CaseResult, series: Series) -> FloatArray | None:
    """Return each step's median over rounds, or one value for the window as a whole.

    Returns:
        `None` where the series was not taken.
    """
    measurement = case.measurement(series)
    medians = None if measurement is None else step_medians(measurement.samples)
    return medians if medians is not None and medians.size else None


def typical_us(case: CaseResult, series: Series) -> float | None:
    """Return the median over the steps of a case of each step's median over rounds."""
    medians = step_medians_of(case, series)
    if medians is None:
        return None
    return float(medians[0]) if medians.size == 1 else median(medians)


def figure_us(calibration: Calibration | None, name: str) -> float | None:
    """Return the median of a calibration's figure, or `None` where it was not taken."""
    samples = calibration.samples(name) if calibration else None
    return median(samples) if samples else None


@dataclass(frozen=True)
class MethodLine:
    """The times that a method reports for kernels of known length, and the line through them.

    Args:
        method: the method.
        set_us: the lengths.
        reported_us: per length, the median of the reported times.
        line: through the medians.
    """

    method: Method
    set_us: list[float]
    reported_us: list[float]
    line: Line

    @property
    def corrected_us(self) -> dict[float, float]:
        """Return per length the reported time minus the intercept."""
        return {
            length_us: reported_us - self.line.intercept
            for length_us, reported_us in zip(self.set_us, self.reported_us, strict=True)
        }


def method_lines(calibration: Calibration) -> dict[Method, MethodLine]:
    """Return the line of each method that reported two lengths or more."""
    lines = {}
    for found in calibration.lines:
        # A file may hold less than it should.
        taken = {
            length_us: median(samples)
            for length_us, samples in zip(found.set_us, found.reported_us, strict=False)
            if samples
        }
        if len(taken) > 1:
            set_us, reported_us = [*taken], [*taken.values()]
            line = line_fit(set_us, reported_us)
            lines[found.method] = MethodLine(found.method, set_us, reported_us, line)
    return lines


def method_line(calibration: Calibration | None, method: Method) -> Line | None:
    """Return the line of a method's reported times over set kernel lengths, by medians per length.

    Returns:
        `None` where it was not calibrated, or at fewer than two lengths.
    """
    found = method_lines(calibration).get(method) if calibration else None
    return found.line if found else None
