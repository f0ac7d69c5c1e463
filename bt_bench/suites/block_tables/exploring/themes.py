"""The themes of scenarios, and the random plans of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from bt_bench.protocol import Source
from bt_bench.suites.block_tables.exploring.calls import BOTH, GATHER, SLOTS, STEP, Ints
from bt_bench.suites.block_tables.exploring.layouts import Shape


@dataclass(frozen=True)
class FixedStep:
    """The fixed parts of a step; any part that is `None` is drawn.

    Args:
        reqs: requests of its batches.
        tokens: tokens of its batches.
        ways: its calls by name, `CAPTURE` among them; empty: any.
        starts: spread of tokens over requests, by its name in `starts.SPREADS`.
        padded: `num_reqs_padded`.
        writes: number of its writes.
        ids: block ids of each write, in each group.
        quiet: calls of apply with nothing staged, before all else.
        state: "snapshot" or "restore", before its calls.
        out: set of custom outputs that its calls get.
        dummy_last: whether the last request is a dummy, with rows behind the batch.
        overwrite: whether its writes overwrite rows; `None`: some do.
    """

    reqs: int | None = None
    tokens: int | None = None
    ways: tuple[str, ...] = ()
    starts: str | None = None
    padded: int | None = None
    writes: int | None = None
    ids: int | None = None
    quiet: int = 0
    state: str = ""
    out: int | None = None
    dummy_last: bool = False
    overwrite: bool | None = None


@dataclass
class ScenarioPlan:
    """A random plan of some of a scenario's tables, and of the calls on them.

    Args:
        theme: its name.
        shapes: shapes of its layouts; tables after the first may repeat a layout.
        steps: number of steps; `None`: as many as the sizes allow, up to a dozen.
        given: the first steps, fixed in part; others follow.
        batch: requests of a step; `None`: any number.
        tokens: tokens of a step; `None`: any number.
        writes: writes of a step; `None`: a few.
        ids: block ids of a write; `None`: a few.
        ways: the calls of a step, one of these; empty: any.
        stage: share of steps that stage something.
        refused: share of steps with a call that must be refused.
        refusals: number of such calls in such a step.
        validate: share of steps that switch `validate` on or off.
        prompts: whether rows are filled at first.
        column: a column that many rows are about to reach; if several, rows take them in turn.
        short: whether all rows that are filled at first have only a few blocks.
        busy: number of rows that get staged writes, given ones aside; `None`: all.
        rows: the rows with requests and staged writes; empty: all.
        captured: share of steps with a captured step.
        state: share of steps with a snapshot, a restore or dummies.
        switch: share of steps that go on with another of the tables.
        again: share of calls that repeat the last batch with one element changed.
        idle: share of steps without requests, which cost least.
        rows_before: see `Scenario`.
        overwrite: share of writes that overwrite a row though it has room.
        redirect: share of steps that switch `redirect_writes_to_null_block` on or off.
        repeat: share of steps whose last call is then repeated.
        full: share of writes that fill a row.
        decoding: whether captured steps are replayed right after each publication, several in a
            row.
        custom: share of calls into the caller's outputs.
        kept: share of scenarios whose inputs come in kept buffers.
        poison: share of tables whose outputs are filled with garbage before each call.
    """

    theme: str
    shapes: tuple[Shape, ...] = (Shape(),)
    steps: int | None = None
    given: tuple[FixedStep, ...] = ()
    batch: int | None = None
    tokens: int | None = None
    writes: int | None = None
    ids: int | None = None
    ways: tuple[tuple[str, ...], ...] = ()
    stage: float = 0.85
    refused: float = 0.06
    refusals: int = 1
    validate: float = 0.03
    prompts: bool = False
    column: int | tuple[int, ...] | None = None
    short: bool = False
    busy: int | None = None
    rows: tuple[int, ...] = ()
    captured: float = 0.08
    state: float = 0.08
    switch: float = 0.0
    again: float = 0.12
    idle: float = 0.0
    rows_before: int = 0
    overwrite: float = 0.2
    redirect: float = 0.03
    repeat: float = 0.0
    full: float = 0.1
    decoding: bool = False
    custom: float = 0.2
    kept: float = 0.5
    poison: float = 0.7

    def rows_of(self, count: int) -> Ints:
        """Return the rows that may have requests, int64, in tables of `count` rows."""
        return np.array(self.rows or range(count), dtype=np.int64)


CAPTURE = "capture"
EAGER, TOGETHER, APART, CAPTURED = (STEP,), ("apply", BOTH), ("apply", GATHER, SLOTS), (CAPTURE,)
GATHERED, MAPPED = ("apply", GATHER), ("apply", SLOTS)
"""Ways to make a step, or half of one."""


def _mixed(rng: np.random.Generator, _source: Source) -> ScenarioPlan:
    return ScenarioPlan("mixed", prompts=bool(rng.random() < 0.5), repeat=0.3)


def _long_run(rng: np.random.Generator, source: Source) -> ScenarioPlan:
    """Plan hundreds of steps, on few rows, since each step costs."""
    shape = Shape(groups=1, rows=int(rng.integers(1, 4)), tokens=4, width=int(rng.integers(3, 30)))
    steps = int(rng.choice([140, 270])) if not source.deep else int(rng.choice([300, 600, 1100]))
    ways = ((EAGER, TOGETHER, APART)[int(rng.integers(3))], EAGER)
    return ScenarioPlan(
        *("long run", (shape,), steps),
        batch=1,
        writes=1,
        ways=ways,
        refused=0.01,
        captured=0.01,
        state=0.04,
        idle=0.85,
    )


def _wide_rows(rng: np.random.Generator, source: Source) -> ScenarioPlan:
    width = int(rng.choice([130, 257, 513, 1025, 2050, 4097, 9000, 33_000]))
    if source.deep:
        width = int(rng.choice([width, 140_000, 300_000]))
    shape = Shape(groups=int(rng.integers(1, 4)), rows=int(rng.integers(2, 5)), width=width)
    ids = None if rng.random() < 0.5 else int(rng.integers(1, width + 1))
    return ScenarioPlan("wide rows", (shape,), steps=6, ids=ids, prompts=bool(rng.random() < 0.7))


def _far_rows(rng: np.random.Generator, source: Source) -> ScenarioPlan:
    """Plan rows whose offsets in their table need more than 32 bits; with `--deep` on a GPU."""
    if not source.deep:
        return _wide_rows(rng, source)
    width = int(rng.choice([66_000, 80_000, 131_073]))  # there are at most 32,767 rows
    shape = Shape(groups=1, rows=int(rng.integers(2, 7)), width=width, tokens=60, cp=False)
    plan = ScenarioPlan(
        "far rows", (shape,), steps=8, prompts=True, refused=0.0, captured=0.0, state=0.0
    )
    plan.validate, plan.rows_before = 0.0, 2**31 // width + int(rng.integers(1, 9))
    return plan


def _many_rows(rng: np.random.Generator, source: Source) -> ScenarioPlan:
    """Plan a large batch, then smaller ones."""
    rows = int(rng.choice([33, 65, 100, 129, 200, 257]))
    if source.deep:
        rows = int(rng.choice([rows, 513, 1025, 2049]))
    groups = 1 if rows > 100 else int(rng.integers(1, 3))
    shape = Shape(groups=groups, rows=rows, tokens=2 * rows + 9)
    way = (EAGER, TOGETHER, APART)[int(rng.integers(3))]
    given = FixedStep(int(rng.integers(rows - rows // 8, rows + 1)), ways=way)
    plan = ScenarioPlan(
        "many rows", (shape,), 3, (given, FixedStep(int(rng.integers(3)), ways=EAGER)), batch=9
    )
    plan.state, plan.prompts = 0.0, True
    return plan


def _many_tokens(rng: np.random.Generator, source: Source) -> ScenarioPlan:
    tokens = int(rng.choice([129, 513, 1025, 2049, 3000]))
    if source.deep:
        tokens = int(rng.choice([tokens, 8_193, 66_000, 140_000]))
    shape = Shape(groups=int(rng.integers(1, 4)), tokens=tokens, rows=int(rng.integers(1, 6)))
    # As many as fit; few, with all the rest to be padded; or any number.
    exact = (tokens - int(rng.integers(3)), int(rng.integers(9)), None)[int(rng.integers(3))]
    if exact is None and tokens > 10_000:
        exact = 9_000
    return ScenarioPlan(
        "many tokens", (shape,), steps=4, tokens=exact, prompts=bool(rng.random() < 0.5)
    )


def _large_positions(rng: np.random.Generator, _source: Source) -> ScenarioPlan:
    """Plan positions that lie inside of their rows, yet are large."""
    sizes = (1000, 1001, 65_537, 100_000, 999_983, 2**20, 2**24 + 1, 3 * 2**26, 2**30, 2**31 - 1)
    shape = Shape(
        groups=int(rng.integers(1, 3)),
        width=int(rng.choice([2, 9, 40, 3000])),
        block_size=int(rng.choice(sizes)),
        tokens=int(rng.choice([60, 300])),
    )
    return ScenarioPlan("large positions", (shape,), steps=6, prompts=True)


def _many_groups(rng: np.random.Generator, source: Source) -> ScenarioPlan:
    groups = int(rng.choice([5, 6, 7, 8, 9, 12, 16, 17]))
    if source.deep:
        groups = int(rng.choice([groups, 33, 64, 65, 100]))
    return ScenarioPlan(
        "many groups", (Shape(groups=groups, rows=3, options=0.7),), steps=4, batch=2
    )


def _many_writes(rng: np.random.Generator, source: Source) -> ScenarioPlan:
    writes = int(rng.choice([33, 65, 129, 200]))
    if source.deep:
        writes = int(rng.choice([writes, 513, 1025, 3000]))
    rows, width = ((3, 1000), (80, 300), (900, 20), (1_200, 4))[int(rng.integers(4))]
    shape = Shape(groups=int(rng.integers(1, 3)), rows=rows, width=width)
    return ScenarioPlan("many writes", (shape,), steps=3, batch=2, writes=writes)


def _context_parallelism(_rng: np.random.Generator, _source: Source) -> ScenarioPlan:
    return ScenarioPlan("context parallelism", (Shape(cp=True),), steps=5)


def _refusing(_rng: np.random.Generator, _source: Source) -> ScenarioPlan:
    plan = ScenarioPlan(
        "refusals", steps=8, refused=1.0, refusals=40, validate=0.4, batch=3, kept=0.9
    )
    plan.full, plan.redirect = 0.4, 0.3
    return plan


def _several_tables(rng: np.random.Generator, _source: Source) -> ScenarioPlan:
    """Plan two tables of one layout, and sometimes another."""
    shapes = (Shape(windows=True, rows=4), Shape(rows=3))[: 1 + (rng.random() < 0.3)]
    plan = ScenarioPlan(
        "several tables", shapes, steps=16, batch=3, state=0.2, switch=0.7, captured=0.4
    )
    plan.repeat = 0.4
    return plan


def _state_changes(_rng: np.random.Generator, _source: Source) -> ScenarioPlan:
    plan = ScenarioPlan(
        "snapshots and dummies", steps=20, stage=0.5, state=0.7, switch=0.2, repeat=0.15
    )
    plan.captured = 0.0  # only applies write
    return plan


def _changed(rng: np.random.Generator, _source: Source) -> ScenarioPlan:
    """Plan the same batch again and again, with one element changed."""
    rows = int(rng.integers(4, 8))
    shape = Shape(rows=rows, groups=int(rng.integers(1, 3)), tokens=int(rng.integers(9, 40)))
    plan = ScenarioPlan("one element changed", (shape,), 18, batch=rows - 1, stage=0.4, again=0.85)
    plan.repeat = 0.25
    # Filled outputs and new tensors count as changes for a variant that watches for any.
    plan.kept, plan.poison = 0.2, 0.4
    plan.prompts, plan.ways = True, (EAGER, TOGETHER, APART, (SLOTS, GATHER), (BOTH,))
    return plan


def _captured_steps(rng: np.random.Generator, _source: Source) -> ScenarioPlan:
    """Plan several captured steps, with publications for each in turn."""
    shape = Shape(rows=int(rng.integers(1, 6)), groups=int(rng.integers(1, 4)))
    plan = ScenarioPlan("captured steps", (shape,), steps=12, captured=0.9, state=0.3, prompts=True)
    # Later restores repeat it.
    plan.given = (FixedStep(state="snapshot"), FixedStep(state="restore"))
    if rng.random() < 0.5:  # some writes are long enough to fill buffers
        shape.width, shape.groups, shape.rows = 40, 1, int(rng.integers(1, 4))
        plan.full, plan.prompts = 0.5, False
    if rng.random() < 0.5:  # little else writes
        plan.ways, plan.state = ((), (), (GATHER,), EAGER), 0.6
    return plan


def _decoding(rng: np.random.Generator, _source: Source) -> ScenarioPlan:
    """Plan replays as an engine makes them, many without writes; plain steps take prompts.

    Published writes are thus overwritten before a replay that publishes nothing.
    """
    rows = int(rng.integers(2, 6))
    shape = Shape(rows=rows, groups=int(rng.integers(1, 4)), cp=False)
    way = (EAGER, TOGETHER)[int(rng.integers(2))]
    given: list[FixedStep] = []
    for _ in range(6):
        reqs = int(rng.integers(1, rows))
        rest = (EAGER, ("apply",))[int(rng.integers(2))]
        given += [FixedStep(rows, ways=way, writes=3), FixedStep(reqs, ways=rest, padded=reqs)]
    plan = ScenarioPlan("decoding", (shape,), len(given), tuple(given), captured=0.9, prompts=True)
    plan.decoding, plan.overwrite, plan.full = True, 0.8, 0.8
    plan.stage = plan.refused = plan.state = 0.0
    return plan


def _one_row(rng: np.random.Generator, _source: Source) -> ScenarioPlan:
    shape = Shape(
        groups=1, rows=1, width=int(rng.choice([1, 2, 40])), tokens=int(rng.choice([1, 9]))
    )
    return ScenarioPlan("one row", (shape,), steps=8)


DRAWN: Final[dict[str, Callable[[np.random.Generator, Source], ScenarioPlan]]] = {
    "mixed": _mixed,
    "refusals": _refusing,
    "several tables": _several_tables,
    "wide rows": _wide_rows,
    "far rows": _far_rows,
    "snapshots and dummies": _state_changes,
    "many tokens": _many_tokens,
    "context parallelism": _context_parallelism,
    "many rows": _many_rows,
    "many groups": _many_groups,
    "long run": _long_run,
    "many writes": _many_writes,
    "one row": _one_row,
    "large positions": _large_positions,
    "one element changed": _changed,
    "captured steps": _captured_steps,
    "decoding": _decoding,
}
"""The plan of each theme, by its name."""
