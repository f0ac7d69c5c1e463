"""A comparison arranged for reading: what is left out, and in which order the rest comes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any

from bt_bench.analysis import WORST_FIRST, Judged, Judgement, Verdict

_RANKS = {verdict: rank for rank, verdict in enumerate(WORST_FIRST)}


class SortKey(StrEnum):
    """What judgements can be sorted by."""

    NAME = "name"
    CHANGE = "change"
    VERDICT = "verdict"


def sorted_by(judged: Judged, key: SortKey) -> Judged:
    """The comparison with its judgements in another order; the sort is stable.

    Args:
        judged: the comparison.
        key: `name` is by operation and case, as they are spelled; `change` has the largest increase
            first and what has no ratio last; `verdict` has the worst first, and of those that are
            slower or inconclusive the largest increase, of those that are faster the largest
            decrease.
    """
    ordered = tuple(sorted(judged.judgements, key=_SORT_KEYS[key]))
    return replace(judged, judgements=ordered, sorted_by=key.value)


def worst_first(judged: Judged) -> Judged:
    """Sort by verdict, as reports do that are cut; nobody asked for an order."""
    return replace(sorted_by(judged, SortKey.VERDICT), sorted_by=judged.sorted_by)


def only_changed(judged: Judged) -> Judged:
    """The comparison without what is `SAME`, and says how much that is.

    What could not be judged stays: it may have changed.
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
