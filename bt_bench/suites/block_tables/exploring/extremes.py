"""Scenarios of the largest sizes, of sizes just beside thresholds, and of pairs of these.

In Triton's interpreter, the programs of a launch dominate, at some 0.5 ms each; tokens, columns
and ids cost little. A large batch therefore has few steps, and many groups only for good reason.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any, Final

from bt_bench.suites.block_tables.exploring.calls import (
    BOTH,
    GATHER,
    MIXED,
    OWN_SIZE,
    SLOTS,
    STEP,
)
from bt_bench.suites.block_tables.exploring.layouts import Shape
from bt_bench.suites.block_tables.exploring.themes import (
    APART,
    CAPTURED,
    EAGER,
    GATHERED,
    MAPPED,
    TOGETHER,
    FixedStep,
    ScenarioPlan,
)


def _rows(rows: int, *ways: tuple[str, ...], starts: str | None = None) -> ScenarioPlan:
    """Plan a batch of all rows in each of the ways, then a small one if that is not too dear."""
    shape = Shape(groups=1, rows=rows, tokens=2 * rows + 150, options=0.2)
    given = [FixedStep(rows, ways=way, starts=starts) for way in ways]
    return _large(shape, *given, *([FixedStep(3, ways=EAGER)] if rows < 200 else []))


def _plan(shape: Shape, *given: FixedStep, **options: Any) -> ScenarioPlan:
    """Plan these steps, and by default no others; `_named` gives the plan its theme."""
    return ScenarioPlan("", (shape,), given=given, **{"steps": len(given)} | options)


def _large(shape: Shape, *given: FixedStep, **options: Any) -> ScenarioPlan:
    quiet = {"prompts": True, "refused": 0.0, "state": 0.0, "captured": 0.0}
    return _plan(shape, *given, **quiet | options)


def _rows_and_tokens(rows: int, tokens: int) -> ScenarioPlan:
    """Plan whole steps of large batches whose tokens belong to few requests."""
    shape = Shape(groups=1, rows=rows, tokens=tokens, options=0.2)
    halves = FixedStep(rows // 2, tokens // 2, EAGER, "ends")
    return _large(shape, FixedStep(rows, tokens, EAGER, "few"), halves)


def _rows_and_groups(
    rows: int, groups: int, reqs: int, tokens: int, way: tuple[str, ...], padded: int | None = None
) -> ScenarioPlan:
    """Plan a batch of long requests before short ones; perhaps padded with further rows."""
    shape = Shape(groups=groups, rows=rows, tokens=tokens, options=0.2, cp=False)
    return _large(shape, FixedStep(reqs, tokens, way, "mates", padded=padded))


def _rows_and_width(rows: int, width: int) -> ScenarioPlan:
    shape = Shape(groups=1, rows=rows, width=width, tokens=300, options=0.2)
    return _large(
        shape, FixedStep(rows, ways=EAGER), FixedStep(rows - 1, ways=GATHERED, ids=2, writes=9)
    )


def _rows_and_cp(rows: int) -> ScenarioPlan:
    shape = Shape(groups=2, rows=rows, tokens=700, cp=True, ranks=5)
    return _large(
        shape, FixedStep(rows, ways=EAGER, starts="long first"), FixedStep(rows // 2, ways=MAPPED)
    )


def _groups(groups: int) -> ScenarioPlan:
    shape = Shape(groups=groups, rows=3, options=0.7)
    given = (FixedStep(2, ways=EAGER), FixedStep(1, ways=TOGETHER), FixedStep(0, ways=EAGER))
    return _large(shape, *given, batch=2, prompts=False)


def _groups_and_width(groups: int, width: int) -> ScenarioPlan:
    shape = Shape(groups=groups, rows=2, width=width, tokens=40, options=0.5)
    wide, again = FixedStep(2, ways=EAGER, ids=width // 3), FixedStep(2, ways=EAGER)
    return _few(shape, wide, FixedStep(2, ways=APART), again, column=width)


def _few(shape: Shape, *given: FixedStep, **options: Any) -> ScenarioPlan:
    small = {"batch": 2, "prompts": True, "refused": 0.0, "state": 0.1}
    return _plan(shape, *given, **small | options)


def _far_columns(width: int) -> ScenarioPlan:
    """Plan rows that grow past 2**15 columns and up to the last, by one id or several."""
    shape = Shape(groups=1, rows=6, width=width, tokens=60, options=0.2)
    given = (
        FixedStep(1, ways=EAGER, writes=6, ids=1),
        FixedStep(2, ways=EAGER, writes=6, ids=3),
        FixedStep(1, ways=APART, writes=1, ids=width // 3),
        # More ids than a signed 16-bit integer counts.
        FixedStep(1, ways=EAGER, writes=1, ids=2**15 + 9),
    )
    columns = (2**15, min(2**16, width), min(2**16 + 20, width), width, 2**15, 9)
    return _few(shape, *given, column=columns)


def _odd_blocks() -> ScenarioPlan:
    """Plan rows of thousands of blocks whose sizes are no powers of two."""
    shape = Shape(groups=4, rows=3, widths=(2_000,) * 4, sizes=(784, 1_001, 48, 4_095), tokens=300)
    shape.cp, shape.options = False, 0.1
    return _few(shape, *[FixedStep(3, 300, way) for way in (EAGER, TOGETHER, APART, MAPPED) * 2])


def _sets(count: int) -> ScenarioPlan:
    """Plan gathers into `count` sets of the caller's outputs, then into the first ones again."""
    shape = Shape(groups=2, rows=3, tokens=6, width=5, options=0.1)
    sets = [*range(3, 3 + count), 3, 4, 5]
    given = [FixedStep(2, ways=(GATHER,), out=one, writes=1, ids=1) for one in sets]
    return _few(shape, *given, state=0.0, captured=0.0)  # new tables would have seen no set


def _beyond_the_layout(tokens: int, *counts: int) -> ScenarioPlan:
    """Plan batches of more tokens than the layout has, in slots made for them by the caller."""
    shape = Shape(groups=2, rows=4, tokens=tokens, width=30, options=0.2)
    given = [
        FixedStep(reqs, count, way, out=OWN_SIZE)
        for count in counts
        for reqs, way in ((1, EAGER), (3, TOGETHER), (2, MAPPED))
    ]
    return _few(shape, *given)


def _waiting(width: int, groups: int) -> ScenarioPlan:
    """Plan reads of rows while their staged writes wait: of fewer blocks, or of more."""
    shape = Shape(groups=groups, rows=3, tokens=40, widths=(width,) * groups, options=0.2)
    ways: tuple[tuple[str, ...], ...] = (
        *((GATHER,), (SLOTS, GATHER), (BOTH,)),
        *((BOTH, "apply", BOTH), (GATHER, STEP)),
    )
    full = FixedStep(3, ways=EAGER, writes=3, ids=width - 1, overwrite=True)
    few = FixedStep(3, ways=EAGER, writes=3, ids=1, overwrite=True)
    shorter = [(full, replace(few, ways=way)) for way in ways]
    longer = [
        (few, FixedStep(3, ways=way, writes=2, ids=width // 3, overwrite=False)) for way in ways
    ]
    given = chain.from_iterable(shorter + longer)
    return _few(shape, *given, state=0.0, captured=0.0, redirect=0.0, full=0.0)


def _appends_and_overwrites(writes: int, rows: int, width: int) -> ScenarioPlan:
    """Plan rows that get ids in turn, some many times, between long writes that overwrite."""
    shape = Shape(groups=1, rows=rows, tokens=20, width=width, options=0.2)
    given = [FixedStep(rows, ways=way, writes=writes) for way in (EAGER, APART, CAPTURED, EAGER)]
    return _few(shape, *given, overwrite=0.35, full=0.4, stage=1.0)


def _outputs(groups: int) -> ScenarioPlan:
    """Plan calls, most of them into the caller's outputs: one set, another, or parts of both."""
    shape = Shape(groups=groups, rows=4, tokens=20)
    given = [
        FixedStep(3, ways=(GATHER,), out=one, writes=2, ids=1) for one in (0, MIXED, 1, MIXED, 0)
    ]
    options = {"custom": 0.8, "kept": 0.9, "refused": 0.0, "state": 0.0, "captured": 0.0}
    return _plan(shape, *given, steps=13, batch=3, **options)


def _short_rows(width: int) -> ScenarioPlan:
    """Plan wide tables of short rows, with dummies at the end of the batch."""
    shape = Shape(groups=1, rows=30, width=width, tokens=60, options=0.1)
    sizes = (13, 15, 16, 19, 3)
    given = [FixedStep(reqs, ways=EAGER, dummy_last=True, writes=2, ids=1) for reqs in sizes]
    return _large(shape, *given, short=True)


def _width(width: int) -> ScenarioPlan:
    shape = Shape(groups=2, rows=3, width=width)
    given = [
        FixedStep(2, ways=EAGER, ids=min(width // 2, 5_000)),
        FixedStep(3, ways=APART, ids=1),
        FixedStep(3, ways=EAGER),
        FixedStep(2, ways=CAPTURED),
    ]
    # Rows are about to arrive at the last column.
    return _few(shape, *given[: 4 if width < 2_000 else 3], column=width)


def _tokens(tokens: int) -> ScenarioPlan:
    """Plan as many tokens as fit, a few with the rest padded, and many in each of the ways."""
    shape = Shape(groups=1, tokens=tokens, rows=4)
    return _few(
        shape,
        FixedStep(3, ways=MAPPED, tokens=tokens),
        FixedStep(2, ways=TOGETHER, tokens=tokens - 1),
        FixedStep(4, ways=EAGER, tokens=min(tokens, 1_100), starts="runs"),
        FixedStep(1, ways=EAGER, tokens=3),
    )


def _tokens_of_a_step(tokens: int) -> ScenarioPlan:
    shape = Shape(groups=1, tokens=tokens + 1, rows=6, options=0.1)
    return _few(
        shape,
        FixedStep(6, ways=EAGER, tokens=tokens, starts="runs"),
        FixedStep(3, ways=APART, tokens=9),
    )


def _tokens_and_groups(tokens: int, groups: int) -> ScenarioPlan:
    shape = Shape(groups=groups, tokens=tokens, rows=4)
    return _few(
        shape,
        FixedStep(4, ways=TOGETHER, tokens=tokens),
        FixedStep(3, ways=EAGER, tokens=min(tokens, 257), starts="long first"),
    )


def _tokens_and_rows(tokens: int, rows: int) -> ScenarioPlan:
    shape = Shape(groups=1, tokens=tokens, rows=rows, options=0.1)
    return _large(
        shape,
        FixedStep(rows, tokens, MAPPED, "runs"),
        FixedStep(rows, min(tokens, 1_500), EAGER, "long last"),
    )


def _spreads(*starts: str) -> ScenarioPlan:
    """Plan each of the spreads of tokens, with one or two requests per program."""
    shape = Shape(groups=2, tokens=1_300, rows=20, options=0.1)
    given = [FixedStep(12, 250 + 331 * at, EAGER, one) for at, one in enumerate(starts)]
    return _few(shape, *given)


def _cp(ranks: int, groups: int) -> ScenarioPlan:
    shape = Shape(groups=groups, cp=True, ranks=ranks, rows=4)
    reqs_and_ways = ((4, EAGER), (3, APART), (2, TOGETHER), (4, EAGER))
    return _plan(shape, *[FixedStep(reqs, ways=way) for reqs, way in reqs_and_ways], batch=3)


def _positions(
    block_size: int, width: int, groups: int = 2, ranks: int = 1, interleave: int | None = None
) -> ScenarioPlan:
    """Plan positions that are large though inside their rows, and windows that reach as far."""
    shape = Shape(groups=groups, width=width, block_size=block_size, tokens=300, windows=True)
    shape.interleave = interleave
    shape.cp, shape.rows, shape.ranks = ranks > 1, 4, ranks
    return _few(
        shape,
        FixedStep(4, 300, EAGER),
        FixedStep(3, 300, APART),
        FixedStep(2, 290, TOGETHER),
        FixedStep(4, ways=GATHERED),
        FixedStep(4, 9, EAGER),
    )


def _windows(rows: int, width: int, groups: int) -> ScenarioPlan:
    shape = Shape(groups=groups, rows=rows, width=width, tokens=60, windows=True, cp=False)
    ways = (EAGER, TOGETHER, GATHERED, *[EAGER] * (2 if rows < 10 else 0))
    # Few batches of other plans are as large and go into the caller's outputs.
    outs = [FixedStep(rows, ways=EAGER, out=3)] if rows > 32 else []
    return _large(shape, *[FixedStep(rows, ways=way) for way in ways], *outs)


def _writes(writes: int, rows: int, width: int, groups: int = 1) -> ScenarioPlan:
    shape = Shape(groups=groups, rows=rows, width=width, tokens=30, options=0.2)
    given = (
        FixedStep(2, ways=EAGER, writes=writes),
        FixedStep(3, ways=TOGETHER, writes=writes // 8),
        FixedStep(2, ways=CAPTURED, writes=max(9, writes * 3 // 5)),
    )
    return _plan(shape, *given, batch=2, captured=0.0)


def _records(*counts: int) -> ScenarioPlan:
    """Plan writes of several ids to each of many rows, few of them in the batch."""
    shape = Shape(groups=1, rows=max(counts) + 9, width=12, tokens=20, options=0.2)
    return _large(shape, *[FixedStep(2, ways=EAGER, writes=one, ids=3) for one in counts])


def _writes_and_batch(writes: int, rows: int) -> ScenarioPlan:
    """Plan a large batch with a staged write to most rows, of one id or of several."""
    shape = Shape(groups=1, rows=rows, width=9, tokens=2 * rows, options=0.2)
    return _large(shape, FixedStep(rows, ways=EAGER, writes=writes, ids=1))


def _quiet(*quiet: int) -> ScenarioPlan:
    """Plan long writes, of more ids than buffers first have room for, around quiet applies."""
    shape = Shape(groups=1, rows=3, tokens=6, width=4_000)
    steps = [
        given
        for one in quiet
        for given in (
            FixedStep(2, ways=EAGER, quiet=one, writes=2, ids=1_900),
            FixedStep(2, ways=EAGER, writes=1, ids=1),
        )
    ]
    return _few(shape, FixedStep(2, ways=EAGER, writes=2, ids=1_500), *steps)


def _long(steps: int) -> ScenarioPlan:
    """Plan many steps that write one row, while others stay as written or restored.

    Most requests come at the beginning and at the end. The last ones thus meet the effects of 64,
    128 or 256 steps before, whatever counts the steps.
    """
    shape = Shape(groups=1, rows=4, tokens=3, width=40, options=0.1)
    begun = (
        FixedStep(4, ways=EAGER, writes=4, ids=2),
        FixedStep(4, ways=EAGER, state="snapshot"),  # of rows that are longer by the restore
        *[FixedStep(4, ways=EAGER, writes=1)] * 20,
        *[FixedStep(4, ways=EAGER, writes=1, ids=3)] * 6,
        FixedStep(4, ways=EAGER, state="restore"),
        *[FixedStep(4, ways=EAGER)] * 10,
    )
    ended = [FixedStep(4, ways=EAGER)] * 52
    between = [FixedStep(ways=EAGER)] * (steps - len(begun) - len(ended))
    plan = _plan(shape, *begun, *between, *ended, batch=3, writes=1, busy=1, ways=(EAGER,))
    plan.idle, plan.stage, plan.refused, plan.captured, plan.state = 0.85, 1.0, 0.0, 0.0, 0.0
    # The written row becomes the longest, and then short again.
    plan.full, plan.overwrite = 0.01, 0.03
    return plan


def _stale(steps: int) -> ScenarioPlan:
    """Plan rows written in steps, then apart, then read in many steps that write another row.

    Remains of the first steps are thus met whenever a count of steps begins anew.
    """
    shape = Shape(groups=1, rows=2, tokens=6, width=6, options=0.1)
    begun = (
        *[FixedStep(2, ways=EAGER, writes=2, ids=1)] * 2,
        FixedStep(2, ways=APART, writes=2, ids=1, overwrite=True),
    )
    between = [FixedStep(2, 2, EAGER, padded=2)] * (steps - len(begun))
    options = {"writes": 1, "busy": 1, "stage": 1.0, "state": 0.0, "captured": 0.0}
    return _few(shape, *begun, *between, **options)


def _far_rows(rows: int) -> ScenarioPlan:
    """Plan a table of many rows, and use the ones beside powers of two."""
    shape = Shape(groups=1, rows=rows, width=4, tokens=40, options=0.2)
    given = (
        FixedStep(9, ways=EAGER, writes=9, ids=1),
        FixedStep(12, ways=EAGER, writes=12, ids=3),
        FixedStep(5, ways=APART, writes=9),
        FixedStep(9, ways=TOGETHER, writes=5, state="snapshot"),
        FixedStep(7, ways=EAGER, writes=12, ids=2, state="restore"),
        FixedStep(7, ways=CAPTURED, writes=9),
    )
    beside = [2**bits + by for bits in (8, 12, 13, 14, 15) for by in (-1, 0, 9)]
    used = (0, *[row for row in beside if row < rows], rows - 1)
    return _few(shape, *given, rows=used, state=0.0, captured=0.0)


def _interleaved(steps: int) -> ScenarioPlan:
    """Plan steps with writes, steps without, and applies in between, of the same few rows."""
    shape = Shape(groups=1, rows=2, tokens=4, width=30, options=0.1)
    plan = _plan(shape, steps=steps, batch=2, writes=1, ways=(EAGER, EAGER, ("apply",), TOGETHER))
    plan.refused, plan.captured, plan.state, plan.stage, plan.again = 0.0, 0.0, 0.02, 0.5, 0.0
    return plan


def _one(width: int, tokens: int) -> ScenarioPlan:
    return _plan(Shape(groups=1, rows=1, width=width, tokens=tokens), steps=8)


def _named(plans: dict[str, ScenarioPlan]) -> tuple[ScenarioPlan, ...]:
    return tuple(replace(plan, theme=theme) for theme, plan in plans.items())


EXTREMES: Final = _named(
    {
        # Each dimension at its largest, and beside thresholds.
        "one row, one column": _one(1, 1),
        "one row, many columns": _one(40, 9),
        "1,025 tokens in a step": _tokens_of_a_step(1_025),
        "4,097 tokens in a step": _tokens_of_a_step(4_097),
        "positions of 2**42": _positions(2**31 - 1, 3_000),
        "positions beside 2**31": _positions(2**24 + 1, 140),
        "2 ranks": _cp(2, 2),
        "12 ranks": _cp(12, 2),
        "9 groups": _groups(9),
        "33 groups": _groups(33),
        "66,000 columns": _far_columns(66_000),
        "65,536 columns": _far_columns(65_536),
        "1,025 columns": _width(1_025),
        "513 columns": _width(513),
        "40,000 tokens": _tokens(40_000),
        "8,193 tokens": _tokens(8_193),
        "long requests and short ones": _spreads("runs", "turns", "long first", "mates"),
        "requests of one token or none": _spreads("gaps", "ones", "long last", "one"),
        "520 writes": _writes(520, 550, 20),
        "as many writes as fit a program": _records(64, 33, 128, 16, 65, 32, 63),
        "65 writes to 3 rows": _writes(65, 3, 1_000, 2),
        "300 steps": _long(300),
        "steps with writes and without": _interleaved(60),
        "steps with nothing staged": _quiet(70, 300, 1_030),
        "several sets of outputs": _outputs(2),
        "40 sets of outputs": _sets(40),
        "block sizes of no power of two": _odd_blocks(),
        "1,030 rows": _rows(1_030, GATHERED, MAPPED, starts="mates"),
        "513 rows": _rows(513, GATHERED, starts="runs"),
        "257 rows": _rows(257, TOGETHER, starts="turns"),
        "300 rows of few tokens": _rows_and_tokens(300, 500),
        "129 rows": _rows(129, APART, starts="turns"),
        "65 rows": _rows(65, EAGER, CAPTURED),
        "33 rows": _rows(33, EAGER, APART, starts="long first"),
        # Pairs of them.
        "130 rows of 8 groups": _rows_and_groups(130, 8, 130, 900, EAGER),
        "130 rows of 8 groups, captured": _rows_and_groups(130, 8, 20, 600, CAPTURED, padded=20),
        "62 rows of 17 groups, apart": _rows_and_groups(
            62, 17, 12, 300, ("apply", SLOTS, GATHER), padded=62
        ),
        "short rows of 1,100 columns": _short_rows(1_100),
        "40 rows of 3,000 columns": _rows_and_width(40, 3_000),
        "8 groups of 4,100 columns": _groups_and_width(8, 4_100),
        "8 groups of 3,000 tokens": _tokens_and_groups(3_000, 8),
        "130 rows of 9,000 tokens": _tokens_and_rows(9_000, 130),
        "7 ranks, 9 groups": _cp(7, 9),
        "5 ranks, 40 rows": _rows_and_cp(40),
        "windows, 5 groups": _windows(9, 80, 5),
        "windows, 40 rows": _windows(40, 12, 1),
        "windows, 2,000 columns": _windows(3, 2_000, 2),
        "large positions, 7 groups": _positions(3 * 2**26, 40, 7),
        "130 writes, 130 rows": _writes_and_batch(130, 130),
        "66 writes, 6 groups": _writes(66, 70, 12, 6),
        # Outputs of their own size, and writes that wait.
        "more tokens than the layout": _beyond_the_layout(64, 200, 129, 65),
        "many more tokens than the layout": _beyond_the_layout(9, 1_100, 33),
        "what waits, 40 columns": _waiting(40, 1),
        "large positions, 3 ranks": _positions(3 * 2**26, 40, 1, 3),
        "large positions, 4 ranks": _positions(2**27, 70, 1, 4),
        "what waits, 260 columns": _waiting(260, 2),
        "what waits, 1,300 columns": _waiting(1_300, 1),
        "appends between overwrites": _appends_and_overwrites(160, 5, 300),
        "132 steps beside rows at rest": _stale(132),
        "a table of 32,767 rows": _far_rows(32_767),
        "blocks of 2**31 tokens over 3 ranks": _positions(2**30, 40, 1, 3, 2**30),
        "positions of 2**60 over ranks": _positions(2**30, 1_000, 1, 2**20),
    }
)
"""The extremes that every run plays first, each once; a short run plays only some."""

LARGER: Final = _named(
    {
        "65 groups": _groups(65),
        "100 groups": _groups(100),
        "300,000 columns": _far_columns(300_000),
        "131,072 columns": _far_columns(131_072),
        "33,000 columns": _width(33_000),
        "140,000 tokens": _tokens(140_000),
        "66,000 tokens": _tokens(66_000),
        "3,000 writes": _writes(3_000, 1_200, 20),
        "1,100 steps": _long(1_100),
        "1,030 steps beside rows at rest": _stale(1_030),
        "400 steps with writes and without": _interleaved(400),
        "300 sets of outputs": _sets(300),
        "32,767 rows": _rows(32_767, GATHERED),
        "4,097 rows": _rows(4_097, TOGETHER),
        "2,049 rows": _rows(2_049, TOGETHER),
    }
)
"""The extremes that `--deep` plays after all scenarios of a default run."""
