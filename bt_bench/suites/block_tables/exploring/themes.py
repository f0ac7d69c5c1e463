"""What scenarios are made for: a theme for each number, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from bt_bench.protocol import Source
from bt_bench.suites.block_tables.exploring.layouts import Shape


@dataclass
class Plan:
    """How a scenario is drawn.

    Args:
        theme: its name.
        shapes: of its layouts; tables after the first may repeat a layout.
        steps: how many steps; `None`: as many as the sizes allow, up to a dozen.
        batch: requests of a step; `None`: any number.
        batches: requests of the first steps, in place of `batch`.
        tokens: tokens of a step; `None`: any number.
        writes: of a step; `None`: a few.
        ids: block ids of a write; `None`: a few.
        stage: share of steps that stage something.
        refused: share of steps with a call that has to be refused.
        refusals: how many such calls those steps have.
        validate: share of steps that switch `validate` on or off.
        state: share of steps with a snapshot, a restore or dummies.
        switch: share of steps that go on with another of the tables.
        rows_before: see `Scenario`.
        beside: whether `ids` and `tokens` are now and then one less or more.
        column: that many rows are about to reach.
    """

    theme: str
    shapes: tuple[Shape, ...] = (Shape(),)
    steps: int | None = None
    batch: int | None = None
    batches: tuple[int, ...] = ()
    tokens: int | None = None
    writes: int | None = None
    ids: int | None = None
    stage: float = 0.85
    refused: float = 0.06
    refusals: int = 1
    validate: float = 0.03
    prompts: bool = False
    quiet: int = 0
    beside: bool = False
    column: int | None = None
    captured: float = 0.08
    state: float = 0.08
    switch: float = 0.0
    rows_before: int = 0


def plan_of(source: Source, rng: np.random.Generator) -> Plan:
    """The plan of a scenario."""
    return _PLANS[THEMES[source.number % len(THEMES)]](rng, source)


def _mixed(rng: np.random.Generator, _source: Source) -> Plan:
    return Plan("mixed", prompts=bool(rng.random() < 0.5))


def _long_run(rng: np.random.Generator, source: Source) -> Plan:
    shape = Shape(groups=int(rng.integers(1, 3)), rows=int(rng.integers(2, 5)), tokens=8)
    steps = int(rng.choice([140, 270])) if not source.deep else int(rng.choice([300, 600, 1100]))
    return Plan("long run", (shape,), steps=steps, batch=2, writes=1, refused=0.01, state=0.02)


def _wide_rows(rng: np.random.Generator, source: Source) -> Plan:
    width = int(rng.choice([130, 257, 513, 1025, 2050, 4097, 9000, 33_000, 66_000]))
    if source.deep:
        width = int(rng.choice([width, 140_000, 300_000]))
    shape = Shape(groups=int(rng.integers(1, 4)), rows=int(rng.integers(2, 5)), width=width)
    ids = None if rng.random() < 0.5 else int(rng.integers(1, width + 1))
    return Plan("wide rows", (shape,), steps=6, ids=ids, prompts=bool(rng.random() < 0.7))


def _far_rows(rng: np.random.Generator, source: Source) -> Plan:
    """Rows of a table so large that their offsets need more than 32 bits; on a GPU alone."""
    if not source.deep:
        return _wide_rows(rng, source)
    width = int(rng.choice([66_000, 80_000, 131_073]))  # there are at most 32,767 rows
    shape = Shape(groups=1, rows=int(rng.integers(2, 7)), width=width, tokens=60, cp=False)
    plan = Plan("far rows", (shape,), steps=8, prompts=True, refused=0.0, captured=0.0, state=0.0)
    plan.validate, plan.rows_before = 0.0, 2**31 // width + int(rng.integers(1, 9))
    return plan


def _many_rows(rng: np.random.Generator, source: Source) -> Plan:
    """A large batch, and smaller ones after it."""
    rows = int(rng.choice([33, 65, 129, 257, 513, 1025, 1500]))
    if source.deep:
        rows = int(rng.choice([rows, 2049, 4097]))
    groups = 1 if rows > 300 else int(rng.integers(1, 3))
    shape = Shape(groups=groups, rows=rows, tokens=rows + 9)
    batches = (int(rng.integers(rows - rows // 8, rows + 1)), int(rng.integers(3)))
    plan = Plan("many rows", (shape,), steps=4, batch=9, batches=batches, writes=20, state=0.0)
    plan.tokens = rows
    return plan


def _many_tokens(rng: np.random.Generator, source: Source) -> Plan:
    tokens = int(rng.choice([129, 513, 1025, 2049, 4097, 8193, 16_390, 20_000, 40_000]))
    if source.deep:
        tokens = int(rng.choice([tokens, 66_000, 140_000]))
    shape = Shape(groups=int(rng.integers(1, 4)), tokens=tokens, rows=int(rng.integers(1, 6)))
    # As many as fit; few, with all the rest to be padded; or any number.
    exact = (tokens - int(rng.integers(3)), int(rng.integers(9)), None)[int(rng.integers(3))]
    if exact is None and tokens > 10_000:
        exact = 9_000
    return Plan("many tokens", (shape,), steps=4, tokens=exact, prompts=bool(rng.random() < 0.5))


def _large_positions(rng: np.random.Generator, _source: Source) -> Plan:
    """Positions that lie inside of their rows, and are large all the same."""
    sizes = (1000, 1001, 65_537, 100_000, 999_983, 2**20, 2**24 + 1, 3 * 2**26, 2**30, 2**31 - 1)
    shape = Shape(
        groups=int(rng.integers(1, 3)),
        width=int(rng.choice([2, 9, 40, 3000])),
        block_size=int(rng.choice(sizes)),
        tokens=int(rng.choice([60, 300])),
    )
    return Plan("large positions", (shape,), steps=6, prompts=True)


def _many_groups(rng: np.random.Generator, source: Source) -> Plan:
    groups = int(rng.choice([5, 6, 7, 8, 9, 12, 16, 17, 24, 33]))
    if source.deep:
        groups = int(rng.choice([groups, 64, 65, 100]))
    return Plan("many groups", (Shape(groups=groups, rows=3, options=0.7),), steps=4, batch=2)


def _many_writes(rng: np.random.Generator, source: Source) -> Plan:
    writes = int(rng.choice([33, 65, 129, 257, 300, 513, 800]))
    if source.deep:
        writes = int(rng.choice([writes, 1025, 3000]))
    rows, width = ((3, 1000), (80, 300), (900, 20), (1_200, 4))[int(rng.integers(4))]
    shape = Shape(groups=int(rng.integers(1, 4)), rows=rows, width=width)
    return Plan("many writes", (shape,), steps=5, batch=2, writes=writes)


def _context_parallelism(_rng: np.random.Generator, _source: Source) -> Plan:
    return Plan("context parallelism", (Shape(cp=True),), steps=5)


def _refusing(_rng: np.random.Generator, _source: Source) -> Plan:
    return Plan("refusals", steps=8, refused=1.0, refusals=40, validate=0.4, batch=3)


def _several_tables(_rng: np.random.Generator, _source: Source) -> Plan:
    return Plan("several tables", (Shape(), Shape()), steps=20, state=0.25, switch=0.5)


def _state_changes(_rng: np.random.Generator, _source: Source) -> Plan:
    return Plan("snapshots and dummies", steps=16, stage=0.4, state=0.7, switch=0.2)


def _one_row(rng: np.random.Generator, _source: Source) -> Plan:
    shape = Shape(
        groups=1, rows=1, width=int(rng.choice([1, 2, 40])), tokens=int(rng.choice([1, 9]))
    )
    return Plan("one row", (shape,), steps=8)


def _named_sizes(rng: np.random.Generator, source: Source) -> Plan:
    """One direction is as large as a number in the variant's code, or one beside it.

    Numbers and directions come in a fixed order that repeats none before all have come.
    """
    most_steps = 1_200 if source.deep else 320
    ways = [
        (size, direction)
        for size in source.sizes
        for direction, most in {**_DIRECTIONS, "steps": most_steps, "quiet steps": 1_200}.items()
        if size <= most
    ]
    if not ways:
        return Plan("mixed")
    rounds, place = divmod(source.number, len(THEMES))
    turn = rounds * THEMES.count("named sizes") + THEMES[:place].count("named sizes")
    order = np.random.default_rng(source.seed).permutation(len(ways))
    size, direction = ways[int(order[turn % len(ways)])]
    if direction not in ("ids", "tokens"):  # these vary from call to call
        size = max(1, size + int(rng.choice([-1, 0, 1, 1])))
    shape = Shape(groups=int(rng.integers(1, 3)), rows=int(rng.integers(2, 5)), options=0.4)
    plan = Plan(f"{direction} as the code names", (shape,), steps=5)
    match direction:
        case "groups":
            shape.groups = size
        case "rows":
            shape.rows, shape.groups, shape.tokens, plan.tokens = size + 9, 1, size + 9, size + 1
            plan.steps, plan.batch = 6, 3
            plan.batches = (size, 1, size + 1, 0, size + 7, 2)
        case "columns":
            shape.width, plan.prompts = size + int(rng.choice([0, 9, size])), True
            plan.column = size
        case "ids":
            shape.width, plan.ids, plan.beside = size + 2, size, True
        case "tokens":
            shape.tokens, plan.tokens, plan.beside = size + 1, size, True
        case "padding":
            shape.tokens, plan.tokens = size + 9, 4
        case "block size":
            shape.block_size = size
        case "writes":
            shape.rows, plan.writes, plan.batch = size + 9, size, 2
        case "quiet steps":
            plan.quiet, plan.batch, plan.steps = size + 1, 2, 4
        case "steps":
            # A quarter of them applies nothing.
            plan.steps, plan.writes, plan.batch = size + size // 2 + 2, 1, 2
            if size < 130 and rng.random() < 0.5:
                # Some rows are written rarely, and as many steps write several blocks to a row.
                shape.rows, plan.steps = 30, 5 * size // 2
            plan.stage, plan.refused, plan.state = 1.0, 0.0, 0.02
            shape.groups = 1  # so many calls take long
    return plan


_DIRECTIONS: Final = {
    "groups": 40,
    "rows": 1_100,
    "columns": 60_000,
    "ids": 60_000,
    "tokens": 20_000,
    "padding": 300_000,
    "block size": 2**20,
    "writes": 1_100,
}
_PLANS: Final[dict[str, Callable[[np.random.Generator, Source], Plan]]] = {
    "mixed": _mixed,
    "named sizes": _named_sizes,
    "refusals": _refusing,
    "several tables": _several_tables,
    "wide rows": _wide_rows,
    "far rows": _far_rows,
    "state": _state_changes,
    "many tokens": _many_tokens,
    "context parallelism": _context_parallelism,
    "many rows": _many_rows,
    "many groups": _many_groups,
    "long run": _long_run,
    "many writes": _many_writes,
    "one row": _one_row,
    "large positions": _large_positions,
}
_OTHERS: Final = (
    *("mixed", "refusals", "several tables", "wide rows", "state", "many tokens"),
    *("context parallelism", "many rows", "large positions", "many groups", "mixed", "long run"),
    *("refusals", "many writes", "one row", "far rows"),
)
# Every other scenario is of the sizes that the code names; these are quick.
THEMES: Final = tuple(name for other in _OTHERS for name in (other, "named sizes"))
