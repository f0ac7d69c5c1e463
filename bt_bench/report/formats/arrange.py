"""Sorting and filtering of a comparison for its readers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any

from bt_bench.analysis import WORST_FIRST, Judged, Judgement, Verdict

_RANKS = {verdict: rank for rank, verdict in enumerate(WORST_FIRST)}


class SortKey(StrEnum):
    """The sort keys of judgements."""

    NAME = "name"
    CHANGE = "change"
    VERDICT = "verdict"


def sorted_by(judged: Judged, key: SortKey) -> Judged:
    """Return the comparison with its judgements in another order; the sort is stable.

    Args:
        judged: the comparison.
        key: `name` sorts by operation and case, as spelled; `change` puts the largest increase
            first and judgements without a ratio last; `verdict` puts the worst verdict first, then
            the largest increase of slower and inconclusive judgements, or the largest decrease of
            faster ones.
    """
    ordered = tuple(sorted(judged.judgements, key=_SORT_KEYS[key]))
    return replace(judged, judgements=ordered, sorted_by=key.value)


def worst_first(judged: Judged) -> Judged:
    """Sort by verdict for a report of limited size; `sorted_by` keeps the order asked for."""
    return replace(sorted_by(judged, SortKey.VERDICT), sorted_by=judged.sorted_by)


def only_changed(judged: Judged) -> Judged:
    """Return the comparison without `SAME` judgements, and with their number in its scope.

    Judgements without a conclusion stay: their metric may have changed.
    """
    kept = tuple(each for each in judged.judgements if each.verdict is not Verdict.SAME)
    left_out = len(judged.judgements) - len(kept)
    if not left_out:
        return judged
    fact = (
        f"Not listed: {left_out} of {len(judged.judgements)} judgements, which are {Verdict.SAME}."
    )
    return replace(judged, judgements=kept, scope=(*judged.scope, fact))


def _by_name(judgement: Judgement) -> tuple[str, str, str, str]:
    return judgement.key, judgement.other, judgement.base, judgement.metric


def _by_change(judgement: Judgement) -> tuple[float]:
    return (math.inf if judgement.ratio is None else -judgement.ratio,)


def _by_verdict(judgement: Judgement) -> tuple[int, float]:
    rank = _RANKS[judgement.verdict]
    if judgement.verdict is Verdict.SLOWER:
        # An increase from zero has no ratio, and sorts above all that have one.
        return rank, -math.inf if judgement.ratio is None else -judgement.ratio
    if judgement.verdict is Verdict.INCONCLUSIVE:  # a noisy regression must not be cut off first
        return rank, math.inf if judgement.ratio is None else -judgement.ratio
    if judgement.verdict is Verdict.FASTER:
        return rank, math.inf if judgement.ratio is None else judgement.ratio
    return rank, 0.0


_SORT_KEYS: dict[SortKey, Callable[[Judgement], tuple[Any, ...]]] = {
    SortKey.NAME: _by_name,
    SortKey.CHANGE: _by_change,
    SortKey.VERDICT: _by_verdict,
}
