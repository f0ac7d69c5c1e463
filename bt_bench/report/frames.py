"""Results as a pandas table, for notebooks and spreadsheets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bt_bench.analysis import (
    interquartile_range,
    median,
    median_interval,
    percentile,
    step_medians,
)
from bt_bench.errors import UsageError
from bt_bench.results import CaseResult, Measurement, VariantResult

if TYPE_CHECKING:
    import pandas as pd

SUMMARY_COLUMNS = (
    "run_id",
    "variant",
    "operation",
    "case",
    "digest",
    "quantity",
    "method",
    "launch_path",
    "load",
    "l2",
    "per",
    "rounds",
    "steps",
    "median_us",
    "median_low_us",
    "median_high_us",
    "iqr_us",
    "p99_us",
)


def summary_frame(results: Sequence[VariantResult]) -> pd.DataFrame:
    """A row per variant, case and series that was measured.

    For a window of one step, or if a sample is of the window as a whole, the figures are over the
    rounds; else over the medians of the window's steps. The interval of the median is at 95 %. It
    is absent below six samples, and over steps, since steps do not sample the same thing.

    Raises:
        UsageError: where pandas is not installed.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise UsageError(
            "summary_frame needs pandas, which is not installed; pip install 'bt-bench[pandas]'"
        ) from error

    rows = [
        _summarize(result, case, measurement)
        for result in results
        for case in result.cases
        for measurement in case.measurements
        if any(measurement.samples)
    ]
    return pd.DataFrame(rows, columns=list(SUMMARY_COLUMNS))


def _summarize(result: VariantResult, case: CaseResult, measurement: Measurement) -> dict[str, Any]:
    one_step = case.workload.num_steps == 1 or measurement.per == "window"
    values = list(_first_step(measurement)) if one_step else step_medians(measurement.samples)
    interval = median_interval(values) if one_step else None
    return {
        "run_id": result.run_id,
        "variant": result.variant.name,
        "operation": str(case.operation),
        "case": case.case,
        "digest": case.workload.digest,
        "quantity": measurement.quantity.value,
        "method": measurement.method.value,
        "launch_path": measurement.launch_path.value,
        "load": measurement.load.value,
        "l2": measurement.l2.value,
        "per": measurement.per,
        "rounds": len(measurement.samples),
        "steps": case.workload.num_steps,
        "median_us": median(values),
        "median_low_us": interval.low if interval else None,
        "median_high_us": interval.high if interval else None,
        "iqr_us": interquartile_range(values),
        "p99_us": percentile(values, 99),
    }


def _first_step(measurement: Measurement) -> Iterator[float]:
    return (samples[0] for samples in measurement.samples if samples)
