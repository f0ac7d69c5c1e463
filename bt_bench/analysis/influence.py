"""Whether one arm slows another that runs after it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from bt_bench.analysis.statistics.estimates import trimmed_estimate
from bt_bench.base import format_share

LEAST_INFLUENCE: Final = 0.02
"""An influence below this share cannot hide what a gate looks for: half of the calls have it."""

_LEVEL: Final = 1e-3
_TRIMMED: Final = 0.1


def certain_influence(logs: Sequence[float], tests: int) -> str | None:
    """The influence in words, if it certainly is larger than `LEAST_INFLUENCE`; else `None`.

    Args:
        logs: of each process the log ratio of a time after an intruder to that after other arms.
        tests: how many such series are looked at, by Bonferroni's correction.
    """
    estimate = trimmed_estimate(logs, _TRIMMED)
    if estimate is None or not estimate.is_finite:
        return None
    bound, level = math.log1p(LEAST_INFLUENCE), _LEVEL / max(1, tests)
    p = min(estimate.tail_above(bound), estimate.tail_below(-bound))
    if p > level:
        return None
    return format_share(abs(math.expm1(estimate.location)))
