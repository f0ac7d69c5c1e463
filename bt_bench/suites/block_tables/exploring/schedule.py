"""The themes of scenarios by number: extremes first, then named sizes and others.

`--deep` begins with the scenarios of a default run of the same seed, and so finds the same
failures. Larger extremes come next, then the themes again, at larger sizes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from bt_bench.protocol import Source
from bt_bench.suites.block_tables.exploring.extremes import EXTREMES, LARGER
from bt_bench.suites.block_tables.exploring.named import NAMED, named_sizes
from bt_bench.suites.block_tables.exploring.themes import DRAWN, ScenarioPlan

SCENARIOS: Final = 98
"""The number of scenarios of a default run; only `--explore N` and `--deep` play later ones."""

OTHERS: Final = (
    *("refusals", "decoding", "captured steps", "several tables", "one element changed", "mixed"),
    *("snapshots and dummies", "refusals", "decoding", "captured steps", "several tables", "mixed"),
    *("several tables", "decoding", "several tables", "one element changed", "refusals"),
    *("snapshots and dummies", "mixed", "decoding", "captured steps", "context parallelism"),
    *(
        "one element changed",
        "large positions",
        "far rows",
        "long run",
        "many tokens",
        "many groups",
    ),
    *("wide rows", "many rows", "many writes", "one row"),
)
_ROUND: Final = (True, False, True, False, False)  # whether a scenario is of named sizes


def theme_of(number: int) -> str:
    """Return the theme of a scenario."""
    if number < len(EXTREMES):
        return EXTREMES[number].theme
    _, others = _before(number)
    return NAMED if _ROUND[(number - len(EXTREMES)) % len(_ROUND)] else OTHERS[others % len(OTHERS)]


def _before(number: int) -> tuple[int, int]:
    """Count the scenarios of named sizes before one, and the others."""
    rounds, place = divmod(number - len(EXTREMES), len(_ROUND))
    named = rounds * sum(_ROUND) + sum(_ROUND[:place])
    return named, number - len(EXTREMES) - named


def plans_of(source: Source, rng: np.random.Generator) -> tuple[ScenarioPlan, ...]:
    """Return the plans of a scenario, to play one after the other, each with its own tables."""
    number = source.number
    if source.deep and number >= SCENARIOS:
        if number - SCENARIOS < len(LARGER):
            return (LARGER[number - SCENARIOS],)
        number -= len(LARGER)
    begun = SCENARIOS if source.deep else len(EXTREMES)  # turns begin anew with larger sizes
    if number < len(EXTREMES):
        return (EXTREMES[number],)
    theme = theme_of(number)
    if theme != NAMED:
        return (DRAWN[theme](rng, source),)
    turn = _before(number)[0] - _before(begun)[0]
    return named_sizes(rng, source, turn) or (DRAWN["mixed"](rng, source),)
