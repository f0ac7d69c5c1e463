"""Unique labels for the results of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from bt_bench.base.errors import UsageError
from bt_bench.results import VariantResult


def unique_labels(
    results: Sequence[VariantResult], labels: Sequence[str] | None = None
) -> list[str]:
    """Return a label per result: as given, else the variant, with its run where ambiguous.

    Raises:
        UsageError: for another number of labels than of results.
    """
    if labels is not None and len(labels) != len(results):
        raise UsageError(f"got {len(labels)} labels for {len(results)} results")
    if labels is None:
        names = [result.variant.name for result in results]
        labels = [
            name if names.count(name) == 1 else f"{name} ({result.run_id})"
            for name, result in zip(names, results, strict=True)
        ]
    unique: list[str] = []
    for label in labels:
        candidate, number = label, 2
        while candidate in unique:
            candidate, number = f"{label} #{number}", number + 1
        unique.append(candidate)
    return unique
