"""Scenarios of the numbers that a variant's own code names, and of their neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from bt_bench.protocol import Source
from bt_bench.suites.block_tables.exploring.layouts import Shape
from bt_bench.suites.block_tables.exploring.themes import (
    APART,
    EAGER,
    GATHERED,
    MAPPED,
    TOGETHER,
    FixedStep,
    ScenarioPlan,
)

NAMED: Final = "named sizes"
LIKELY, OTHER = 3, 2  # directions of each kind in a scenario; others in every second one
LIKELIEST: Final = ("rows", "tokens", "columns", "ids", "groups", "padding")
_FULL, _CHEAP, _DEAR = 12, 60, 300  # sizes, by the cost of as many programs
_DEAR_ONES: Final = ("rows", "writes", "steps")
_WAYS = (EAGER, TOGETHER, APART, EAGER)


def named_sizes(rng: np.random.Generator, source: Source, turn: int) -> tuple[ScenarioPlan, ...]:
    """Plan several directions, each as large as a number in the code, one less, and one more.

    The likeliest directions come first, and none comes again before all have come.

    Args:
        rng: random numbers.
        source: the scenario's source.
        turn: number of earlier scenarios of named sizes.

    Returns:
        The plans of each direction; none if the code names no number.
    """
    likely, other = (_ways(source, kind) for kind in (LIKELIEST, tuple(_DIRECTIONS)[6:]))
    chosen = _in_turn(likely, turn, LIKELY)
    if turn % 2 == 0 or not chosen:
        chosen += _in_turn(other, turn // 2, OTHER)
    plans: list[ScenarioPlan] = []
    for size, direction in dict.fromkeys(chosen):
        for plan in _DIRECTIONS[direction][1](rng, size):
            plan.theme = direction
            plan.refused = plan.captured = 0.0
            plan.state, plan.validate = 0.02, 0.0
            plans.append(plan)
    directions = ", ".join(dict.fromkeys(plan.theme for plan in plans))
    for plan in plans:
        plan.theme = f"{directions} as the code names"
    return tuple(plans)


def _ways(source: Source, directions: Sequence[str]) -> list[tuple[int, str]]:
    """Return sizes with directions, in a run's order: directions in turn, sizes shuffled."""
    order = np.random.default_rng(source.seed)
    columns = []
    for direction in directions:
        most, _ = _DIRECTIONS[direction]
        most = 4 * most if source.deep and direction in ("steps", "writes", "rows") else most
        sizes = [size for size in source.sizes if size <= most]
        columns.append([(size, direction) for size in order.permutation(sizes).tolist()])
    longest = max(map(len, columns), default=0)
    return [(int(n), d) for at in range(longest) for c in columns for n, d in c[at : at + 1]]


def _in_turn(ways: Sequence[tuple[int, str]], turn: int, count: int) -> list[tuple[int, str]]:
    """Return the ways of a turn."""
    wanted = range(turn * count, turn * count + min(count, len(ways)))
    chosen = [(*ways[index % len(ways)], index >= len(ways)) for index in wanted]
    # A way comes again only where it is cheap.
    return [(n, d) for n, d, again in chosen if not (again and n > _CHEAP and d in _DEAR_ONES)]


def _beside(rng: np.random.Generator, size: int) -> list[int]:
    """Return the size, one more, and one less; the dearer they are, the fewer."""
    sizes = [size, size + 1, max(1, size - 1)]
    if size <= _CHEAP:
        return sizes
    return sizes[:2] if size <= _DEAR else [sizes[int(rng.integers(2))]]


def _way(rng: np.random.Generator, size: int) -> tuple[str, ...]:
    if size > _FULL:
        return (GATHERED, MAPPED, EAGER)[int(rng.integers(2 if size > _DEAR else 3))]
    return _WAYS[int(rng.integers(len(_WAYS)))]


def _plan(shape: Shape, *given: FixedStep, batch: int = 2, prompts: bool = True) -> ScenarioPlan:
    return ScenarioPlan("", (shape,), len(given), given, batch=batch, prompts=prompts, again=0.05)


def _rows(rng: np.random.Generator, size: int) -> list[ScenarioPlan]:
    shape = Shape(groups=1, rows=size + 9, tokens=2 * size + 30, options=0.3)
    given = [FixedStep(one, ways=_way(rng, size)) for one in _beside(rng, size)]
    if size <= _FULL:
        given += [
            FixedStep(0, ways=EAGER),
            FixedStep(size + 7, ways=EAGER),
            FixedStep(2, ways=EAGER),
        ]
    return [_plan(shape, *given)]


def _groups(rng: np.random.Generator, size: int) -> list[ScenarioPlan]:
    sizes = _beside(rng, size) if size <= 12 else [size, size + 1]
    shapes = [Shape(groups=one, rows=2, options=0.4, tokens=20) for one in sizes]
    given = [FixedStep(1, ways=EAGER), FixedStep(2, ways=_way(rng, 1))]
    return [_plan(shape, *given[: 2 if size <= 12 else 1]) for shape in shapes]


def _columns(rng: np.random.Generator, size: int) -> list[ScenarioPlan]:
    """Plan groups of these widths, and rows that grow past the number."""
    widths = (size + 1, size, max(1, size - 1))
    shape = Shape(groups=3, rows=int(rng.integers(3, 6)), widths=widths, options=0.4)
    given = [FixedStep(3, ways=_way(rng, 1), writes=3, ids=1) for _ in range(3)]
    plan = _plan(shape, *given)
    plan.column = size
    return [plan]


def _ids(rng: np.random.Generator, size: int) -> list[ScenarioPlan]:
    shape = Shape(groups=int(rng.integers(1, 3)), rows=3, width=size + 2, options=0.4)
    sizes = (size, size + 1, max(1, size - 1))
    given = [FixedStep(2, ways=_way(rng, 1), writes=2, ids=one) for one in sizes]
    return [_plan(shape, *given, prompts=False)]


def _tokens(rng: np.random.Generator, size: int) -> list[ScenarioPlan]:
    shape = Shape(groups=int(rng.integers(1, 3)), tokens=size + 1, rows=4, options=0.4)
    sizes = (size, size + 1, max(1, size - 1))
    # One request has all tokens, or several do; many are dear in a step of one launch.
    spreads = ("one", None, "one", "long first")
    given = [
        FixedStep(
            *(int(rng.integers(1, 4)), one),
            (TOGETHER if one > 1_100 and at else _way(rng, 1)),
            spreads[int(rng.integers(4))],
        )
        for at, one in enumerate(sizes)
    ]
    return [_plan(shape, *given)]


def _padding(rng: np.random.Generator, size: int) -> list[ScenarioPlan]:
    """Plan padding: slots behind the tokens, and rows behind the batch."""
    shape = Shape(groups=1, tokens=size + 4, rows=4, options=0.4)
    given = [FixedStep(2, 4 - more, _way(rng, 1)) for more in (0, 1, -1)]
    plans = [_plan(shape, *given)]
    if size <= _CHEAP:
        shape = Shape(groups=1, rows=size + 4, tokens=20, options=0.4)
        padded = [FixedStep(3, 9, GATHERED, padded=3 + one) for one in _beside(rng, size)]
        plans.append(_plan(shape, *padded))
    return plans


def _writes(rng: np.random.Generator, size: int) -> list[ScenarioPlan]:
    shape = Shape(groups=1, rows=size + 9, width=int(rng.choice([3, 12])), options=0.2, tokens=20)
    given = [FixedStep(2, ways=_way(rng, 1), writes=one) for one in _beside(rng, size)]
    return [_plan(shape, *given, prompts=False)]


def _block_size(rng: np.random.Generator, size: int) -> list[ScenarioPlan]:
    shape = Shape(groups=3, rows=3, sizes=(size, size + 1, max(1, size - 1)), options=0.4)
    return [_plan(shape, *[FixedStep(2, ways=_way(rng, 1)) for _ in range(3)])]


def _quiet(_rng: np.random.Generator, size: int) -> list[ScenarioPlan]:
    shape = Shape(groups=1, rows=2, tokens=6, width=1_300, options=0.2)
    sizes = (size, size + 1, max(1, size - 1)) if size <= _DEAR else (size + 1,)
    quiet = [
        FixedStep(2, ways=EAGER, quiet=one, writes=2, ids=ids)
        for one, ids in zip(sizes, (600, 1, 600), strict=False)
    ]
    return [_plan(shape, FixedStep(2, ways=EAGER, writes=2, ids=600), *quiet)]


def _steps(rng: np.random.Generator, size: int) -> list[ScenarioPlan]:
    """Plan as many steps, and some more; many apply nothing, and most have no requests."""
    shape = Shape(groups=1, rows=2, tokens=3, width=40, options=0.1)
    if size < 130 and rng.random() < 0.4:  # rows that are written rarely
        shape.rows = 30
    plan = _plan(shape, batch=1, prompts=False)
    plan.steps, plan.writes, plan.stage, plan.idle = size + size // 4 + 2, 1, 0.4, 0.9
    plan.ways = (EAGER, _WAYS[int(rng.integers(4))])
    return [plan]


_DIRECTIONS: Final[
    dict[str, tuple[int, Callable[[np.random.Generator, int], list[ScenarioPlan]]]]
] = {
    "rows": (1_100, _rows),
    "tokens": (20_000, _tokens),
    "columns": (60_000, _columns),
    "ids": (60_000, _ids),
    "groups": (40, _groups),
    "padding": (300_000, _padding),
    "steps": (130, _steps),
    "quiet steps": (1_200, _quiet),
    "writes": (1_100, _writes),
    "block size": (2**20, _block_size),
}
