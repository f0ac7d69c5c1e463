"""The influence of one arm on another that runs after it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from bt_bench.analysis.statistics.estimates import trimmed_estimate
from bt_bench.base import format_share

LEAST_INFLUENCE: Final = 0.02
"""A smaller influence cannot hide a change that a gate looks for: only half the calls have it."""

_LEVEL: Final = 1e-3
_TRIMMED: Final = 0.1


def certain_influence(logs: Sequence[float], tests: int) -> str | None:
    """Return the influence as text, if it certainly exceeds `LEAST_INFLUENCE`; else `None`.

    Args:
        logs: per process, the log ratio of a time after an intruder to the time after other arms.
        tests: number of such series, for Bonferroni's correction.
    """
    estimate = trimmed_estimate(logs, _TRIMMED)
    if estimate is None or not estimate.is_finite:
        return None
    bound, level = math.log1p(LEAST_INFLUENCE), _LEVEL / max(1, tests)
    p = min(estimate.tail_above(bound), estimate.tail_below(-bound))
    if p > level:
        return None
    return format_share(abs(math.expm1(estimate.location)))
