"""Results and comparisons as pandas tables, for notebooks and spreadsheets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bt_bench.analysis import (
    Judged,
    interquartile_range,
    median,
    median_interval,
    percentile,
    step_medians,
)
from bt_bench.base.errors import UsageError
from bt_bench.report.formats.csv_format import EVIDENCE_COLUMNS, judgement_values
from bt_bench.report.formats.json_format import FIELDS
from bt_bench.report.run.work import ROOFLINE_FIGURES, roofline_json
from bt_bench.results import CaseResult, Measurement, VariantResult, metric_of

if TYPE_CHECKING:
    import pandas as pd

_IDENTITY = ("run_id", "variant", "operation", "case", "digest")
SUMMARY_COLUMNS = (
    *_IDENTITY,
    *("metric", "quantity", "method", "launch_path", "load", "l2", "per", "rounds", "steps"),
    *("median_us", "median_low_us", "median_high_us", "iqr_us", "p99_us"),
)
ROOFLINE_COLUMNS = (*_IDENTITY, *ROOFLINE_FIGURES)


def summary_frame(results: Sequence[VariantResult]) -> pd.DataFrame:
    """Return a table with a row per variant, case and measured series.

    If the window has one step, or a sample is of the window as a whole, the figures are over the
    rounds; else they are over the medians of the window's steps. The interval of the median is at
    95 %. It is absent below six samples, and over steps, since steps do not sample the same thing.

    Raises:
        UsageError: if pandas is not installed.
    """
    rows = [
        _summarize(result, case, measurement)
        for result in results
        for case in result.cases
        for measurement in case.measurements
        if any(measurement.samples)
    ]
    return _frame("to_pandas", rows, SUMMARY_COLUMNS)


def judged_frame(judged: Judged) -> pd.DataFrame:
    """Return a table with a row per judgement, in the columns of the format `csv`.

    Raises:
        UsageError: if pandas is not installed.
    """
    rows = [judgement_values(judgement) for judgement in judged.judgements]
    return _frame("to_pandas", rows, [*FIELDS, *EVIDENCE_COLUMNS])


def roofline_frame(results: Sequence[VariantResult]) -> pd.DataFrame:
    """Return a table with a row per variant and case with known required bytes.

    Times are in µs; for a window of several steps, they are means over its steps.
    `bt_bench.analysis.Roofline` explains the columns. Without a GPU, only the required bytes are
    known.

    Raises:
        UsageError: if pandas is not installed.
    """
    rows = [
        _identity(result, case) | found
        for result in results
        for case in result.cases
        if (found := roofline_json(result, case)) is not None
    ]
    return _frame("roofline_frame", rows, ROOFLINE_COLUMNS)


def _frame(name: str, rows: list[Any], columns: Sequence[str]) -> pd.DataFrame:
    """Return the rows with these columns; `name` is the calling function, for messages."""
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{name} needs pandas, which is not installed; pip install 'bt-bench[pandas]'"
        ) from error
    return pd.DataFrame(rows, columns=list(columns))


def _identity(result: VariantResult, case: CaseResult) -> dict[str, str]:
    values = (
        result.run_id,
        result.variant.name,
        str(case.operation),
        case.case,
        case.workload.digest,
    )
    return dict(zip(_IDENTITY, values, strict=True))


def _summarize(result: VariantResult, case: CaseResult, measurement: Measurement) -> dict[str, Any]:
    one_step = case.workload.num_steps == 1 or measurement.per == "window"
    first = [samples[0] for samples in measurement.samples if samples]
    values = first if one_step else step_medians(measurement.samples)
    interval = median_interval(values) if one_step else None
    return _identity(result, case) | {
        "metric": metric_of(measurement.series).name,
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
