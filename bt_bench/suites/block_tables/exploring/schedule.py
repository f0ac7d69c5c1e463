"""Which scenario is made for what: the extremes first, then named sizes and other themes."""

from __future__ import annotations

from typing import Final

import numpy as np

from bt_bench.protocol import Source
from bt_bench.suites.block_tables.exploring.extremes import EXTREMES
from bt_bench.suites.block_tables.exploring.named import NAMED, named_sizes
from bt_bench.suites.block_tables.exploring.themes import DRAWN, Plan

SCENARIOS: Final = 72
"""How many a default run plays. Later ones are played by `--explore N` and `--deep` alone."""

OTHERS: Final = (
    *("refusals", "mixed", "captured steps", "one element changed", "several tables"),
    *("snapshots and dummies", "refusals", "captured steps", "mixed", "far rows"),
    *("long run", "context parallelism", "large positions", "many tokens", "many groups"),
    *("wide rows", "many rows", "one element changed", "many writes", "one row"),
)


def theme_of(number: int) -> str:
    """What a scenario is made for."""
    if number < len(EXTREMES):
        return EXTREMES[number].name
    rounds, place = divmod(number - len(EXTREMES), 3)
    return OTHERS[rounds % len(OTHERS)] if place == 2 else NAMED


def plans_of(source: Source, rng: np.random.Generator) -> tuple[Plan, ...]:
    """The plans of a scenario: one after the other, each with tables of its own."""
    if source.number < len(EXTREMES):
        return (EXTREMES[source.number].drawn(source),)
    theme = theme_of(source.number)
    if theme != NAMED:
        return (DRAWN[theme](rng, source),)
    rounds, place = divmod(source.number - len(EXTREMES), 3)
    return named_sizes(rng, source, 2 * rounds + place) or (DRAWN["mixed"](rng, source),)
