"""The comparison of a run with itself: each of its variants with its baseline."""

from __future__ import annotations

from collections.abc import Sequence

from bt_bench.analysis.compare.entries import Matchup, Side
from bt_bench.analysis.compare.judge import Criteria, judge
from bt_bench.analysis.compare.labels import unique_labels
from bt_bench.analysis.verdicts import Judged
from bt_bench.results import BASELINE, VariantResult, compacted

_LENIENT = Criteria(ignore_device=True, ignore_helpers=True, ignore_plan=True, allow_partial=True)


def judge_run(results: Sequence[VariantResult]) -> Judged | None:
    """Compare the results of a run's folder like `bt-bench compare`, for the run's tables.

    Results of several runs, and partial ones, are compared all the same: the report of a run shows
    the existing results and names their origin.

    Returns:
        `None` where there is only one result.
    """
    if len(results) < 2:
        return None
    sides = [
        Side(label, compacted(result))
        for label, result in zip(unique_labels(results), results, strict=True)
    ]
    base = sides.pop(baseline_index(results))
    return judge([Matchup(base, other) for other in sides], _LENIENT)


def baseline_index(results: Sequence[VariantResult]) -> int:
    """Return the index of the reference arm: the variant `baseline`, else the first result."""
    names = [result.variant.name for result in results]
    return names.index(BASELINE) if BASELINE in names else 0
