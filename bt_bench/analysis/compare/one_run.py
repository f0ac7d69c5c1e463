"""The comparison of a run with itself: each of its variants with its baseline."""

from __future__ import annotations

from collections.abc import Sequence

from bt_bench.analysis.compare.entries import Matchup, Side
from bt_bench.analysis.compare.judge import Criteria, judge
from bt_bench.analysis.verdicts import Judged
from bt_bench.errors import UsageError
from bt_bench.results import BASELINE, VariantResult, compacted

_LENIENT = Criteria(ignore_device=True, ignore_helpers=True, ignore_plan=True, allow_partial=True)


def judge_run(results: Sequence[VariantResult]) -> Judged | None:
    """What `bt-bench compare` says of a run's folder, for its tables.

    Results of several runs, and partial ones, are compared all the same: the report of a run shows
    what there is, and says what it is of.

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
    """The arm that others are compared with: the variant `baseline`, else the first result."""
    names = [result.variant.name for result in results]
    return names.index(BASELINE) if BASELINE in names else 0


def unique_labels(
    results: Sequence[VariantResult], labels: Sequence[str] | None = None
) -> list[str]:
    """A label per result: as given, else the variant, with its run where names are ambiguous."""
    if labels is None:
        names = [result.variant.name for result in results]
        labels = [
            name if names.count(name) == 1 else f"{name} ({result.run_id})"
            for name, result in zip(names, results, strict=True)
        ]
    if len(labels) != len(results):
        raise UsageError(f"got {len(labels)} labels for {len(results)} results")
    unique: list[str] = []
    for label in labels:
        candidate, number = label, 2
        while candidate in unique:
            candidate, number = f"{label} #{number}", number + 1
        unique.append(candidate)
    return unique
