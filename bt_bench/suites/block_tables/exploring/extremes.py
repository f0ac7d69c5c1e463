"""Scenarios of the largest sizes, of sizes just beside thresholds, and of pairs of these.

In Triton's interpreter, the programs of a launch dominate, at some 0.5 ms each; tokens, columns
and ids cost little. A large batch therefore has few steps, and many groups only for good reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

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
    Given,
    Plan,
)


@dataclass(frozen=True)
class Extreme:
    """A scenario that every run plays.

    Args:
        name: the extreme that it reaches.
        plan: makes its plan.
    """

    name: str
    plan: Callable[[], Plan]

    def drawn(self) -> Plan:
        """Return the plan, named after the extreme."""
        plan = self.plan()
        plan.theme = self.name
        return plan


def _rows(rows: int, *ways: tuple[str, ...], starts: str | None = None) -> Plan:
    """Plan a batch of all rows in each of the ways, then a small one if that is not too dear."""
    shape = Shape(groups=1, rows=rows, tokens=2 * rows + 150, options=0.2)
    given = [Given(rows, ways=way, starts=starts) for way in ways]
    return _large(shape, *given, *([Given(3, ways=EAGER)] if rows < 200 else []))


def _large(shape: Shape, *given: Given) -> Plan:
    return Plan("", (shape,), len(given), given, prompts=True, refused=0.0, state=0.0, captured=0.0)


def _rows_and_tokens(rows: int, tokens: int) -> Plan:
    """Plan whole steps of large batches whose tokens belong to few requests."""
    shape = Shape(groups=1, rows=rows, tokens=tokens, options=0.2)
    given = (
        Given(rows, tokens, EAGER, "few"),
        Given(rows // 2, tokens // 2, EAGER, "ends"),
    )
    return _large(shape, *given)


def _rows_and_groups(rows: int, groups: int, tokens: int, *ways: tuple[str, ...]) -> Plan:
    """Plan batches of long requests before short ones."""
    shape = Shape(groups=groups, rows=rows, tokens=tokens, options=0.2, cp=False)
    return _large(shape, *[Given(rows, tokens, way, "mates") for way in ways])


def _rows_of_groups_padded(rows: int, groups: int, reqs: int, *ways: tuple[str, ...]) -> Plan:
    """Plan batches padded to all rows, most of them behind the requests."""
    shape = Shape(groups=groups, rows=rows, tokens=300, options=0.2, cp=False)
    return _large(shape, *[Given(reqs, 300, way, "mates", padded=rows) for way in ways])


def _captured_of_groups(rows: int, groups: int, reqs: int) -> Plan:
    """Plan a captured step of many rows, few of them in the batch."""
    shape = Shape(groups=groups, rows=rows, tokens=600, options=0.2, cp=False)
    return _large(shape, Given(reqs, 600, CAPTURED, "mates", padded=reqs))


def _rows_and_width(rows: int, width: int) -> Plan:
    shape = Shape(groups=1, rows=rows, width=width, tokens=300, options=0.2)
    return _large(shape, Given(rows, ways=EAGER), Given(rows - 1, ways=GATHERED, ids=2, writes=9))


def _rows_and_cp(rows: int) -> Plan:
    shape = Shape(groups=2, rows=rows, tokens=700, cp=True, ranks=5)
    return _large(
        shape, Given(rows, ways=EAGER, starts="long first"), Given(rows // 2, ways=MAPPED)
    )


def _groups(groups: int) -> Plan:
    shape = Shape(groups=groups, rows=3, options=0.7)
    given = (Given(2, ways=EAGER), Given(1, ways=TOGETHER), Given(0, ways=EAGER))
    return Plan("", (shape,), len(given), given, batch=2, refused=0.0, state=0.0, captured=0.0)


def _groups_and_width(groups: int, width: int) -> Plan:
    shape = Shape(groups=groups, rows=2, width=width, tokens=40, options=0.5)
    wide, again = Given(2, ways=EAGER, ids=width // 3), Given(2, ways=EAGER)
    plan = _few(shape, wide, Given(2, ways=APART), again)
    plan.column = width
    return plan


def _few(shape: Shape, *given: Given) -> Plan:
    return Plan("", (shape,), len(given), given, batch=2, prompts=True, refused=0.0, state=0.1)


def _far_columns(width: int) -> Plan:
    """Plan rows that grow past 2**15 columns and up to the last, by one id or several."""
    shape = Shape(groups=1, rows=6, width=width, tokens=60, options=0.2)
    given = (
        Given(1, ways=EAGER, writes=6, ids=1),
        Given(2, ways=EAGER, writes=6, ids=3),
        Given(1, ways=APART, writes=1, ids=width // 3),
        Given(1, ways=EAGER, writes=1, ids=2**15 + 9),  # more than a signed 16-bit integer counts
    )
    plan = _few(shape, *given)
    plan.column = (2**15, min(2**16, width), min(2**16 + 20, width), width, 2**15, 9)
    return plan


def _odd_blocks() -> Plan:
    """Plan rows of thousands of blocks whose sizes are no powers of two."""
    shape = Shape(groups=4, rows=3, widths=(2_000,) * 4, sizes=(784, 1_001, 48, 4_095), tokens=300)
    shape.cp, shape.options = False, 0.1
    return _few(shape, *[Given(3, 300, way) for way in (EAGER, TOGETHER, APART, MAPPED) * 2])


def _sets(count: int) -> Plan:
    """Plan gathers into `count` sets of the caller's outputs, then into the first ones again."""
    shape = Shape(groups=2, rows=3, tokens=6, width=5, options=0.1)
    sets = [*range(3, 3 + count), 3, 4, 5]
    plan = _few(shape, *[Given(2, ways=(GATHER,), out=one, writes=1, ids=1) for one in sets])
    plan.state = plan.captured = 0.0  # new tables would have seen none of these sets
    return plan


def _beyond_the_layout(tokens: int, *counts: int) -> Plan:
    """Plan batches of more tokens than the layout has, in slots made for them by the caller."""
    shape = Shape(groups=2, rows=4, tokens=tokens, width=30, options=0.2)
    given = [
        Given(reqs, count, way, out=OWN_SIZE)
        for count in counts
        for reqs, way in ((1, EAGER), (3, TOGETHER), (2, MAPPED))
    ]
    return _few(shape, *given)


def _waiting(width: int, groups: int) -> Plan:
    """Plan reads of rows while their staged writes wait: of fewer blocks, or of more."""
    shape = Shape(groups=groups, rows=3, tokens=40, widths=(width,) * groups, options=0.2)
    ways: tuple[tuple[str, ...], ...] = (
        *((GATHER,), (SLOTS, GATHER), (BOTH,)),
        *((BOTH, "apply", BOTH), (GATHER, STEP)),
    )
    full = Given(3, ways=EAGER, writes=3, ids=width - 1, overwrite=True)
    few = Given(3, ways=EAGER, writes=3, ids=1, overwrite=True)
    shorter = [(full, replace(few, ways=way)) for way in ways]
    longer = [(few, Given(3, ways=way, writes=2, ids=width // 3, overwrite=False)) for way in ways]
    plan = _few(shape, *chain.from_iterable(shorter + longer))
    plan.state, plan.captured, plan.redirect, plan.full = 0.0, 0.0, 0.0, 0.0
    return plan


def _appends_and_overwrites(writes: int, rows: int, width: int) -> Plan:
    """Plan rows that get ids in turn, some many times, between long writes that overwrite."""
    shape = Shape(groups=1, rows=rows, tokens=20, width=width, options=0.2)
    given = [Given(rows, ways=way, writes=writes) for way in (EAGER, APART, CAPTURED, EAGER)]
    plan = _few(shape, *given)
    plan.overwrite, plan.full, plan.stage = 0.35, 0.4, 1.0
    return plan


def _outputs(groups: int) -> Plan:
    """Plan calls, most of them into the caller's outputs: one set, another, or parts of both."""
    shape = Shape(groups=groups, rows=4, tokens=20)
    given = [Given(3, ways=(GATHER,), out=one, writes=2, ids=1) for one in (0, MIXED, 1, MIXED, 0)]
    plan = Plan("", (shape,), 13, tuple(given), batch=3, custom=0.8, refused=0.0, kept=0.9)
    plan.state = plan.captured = 0.0
    return plan


def _short_rows(width: int) -> Plan:
    """Plan wide tables of short rows, with dummies at the end of the batch."""
    shape = Shape(groups=1, rows=30, width=width, tokens=60, options=0.1)
    given = [
        Given(reqs, ways=EAGER, dummy_last=True, writes=2, ids=1) for reqs in (13, 15, 16, 19, 3)
    ]
    plan = _large(shape, *given)
    plan.short = True
    return plan


def _width(width: int) -> Plan:
    shape = Shape(groups=2, rows=3, width=width)
    given = [
        Given(2, ways=EAGER, ids=min(width // 2, 5_000)),
        Given(3, ways=APART, ids=1),
        Given(3, ways=EAGER),
        Given(2, ways=CAPTURED),
    ]
    plan = _few(shape, *given[: 4 if width < 2_000 else 3])
    plan.column = width  # where rows are about to arrive
    return plan


def _tokens(tokens: int) -> Plan:
    """Plan as many tokens as fit, a few with the rest padded, and many in each of the ways."""
    shape = Shape(groups=1, tokens=tokens, rows=4)
    return _few(
        shape,
        Given(3, ways=MAPPED, tokens=tokens),
        Given(2, ways=TOGETHER, tokens=tokens - 1),
        Given(4, ways=EAGER, tokens=min(tokens, 1_100), starts="runs"),
        Given(1, ways=EAGER, tokens=3),
    )


def _tokens_of_a_step(tokens: int) -> Plan:
    shape = Shape(groups=1, tokens=tokens + 1, rows=6, options=0.1)
    return _few(
        shape, Given(6, ways=EAGER, tokens=tokens, starts="runs"), Given(3, ways=APART, tokens=9)
    )


def _tokens_and_groups(tokens: int, groups: int) -> Plan:
    shape = Shape(groups=groups, tokens=tokens, rows=4)
    return _few(
        shape,
        Given(4, ways=TOGETHER, tokens=tokens),
        Given(3, ways=EAGER, tokens=min(tokens, 257), starts="long first"),
    )


def _tokens_and_rows(tokens: int, rows: int) -> Plan:
    shape = Shape(groups=1, tokens=tokens, rows=rows, options=0.1)
    return _large(
        shape,
        Given(rows, tokens, MAPPED, "runs"),
        Given(rows, min(tokens, 1_500), EAGER, "long last"),
    )


def _spreads(*starts: str) -> Plan:
    """Plan each of the spreads of tokens, with one or two requests per program."""
    shape = Shape(groups=2, tokens=1_300, rows=20, options=0.1)
    given = [Given(12, 250 + 331 * at, EAGER, one) for at, one in enumerate(starts)]
    return _few(shape, *given)


def _cp(ranks: int, groups: int) -> Plan:
    shape = Shape(groups=groups, cp=True, ranks=ranks, rows=4)
    return Plan(
        "",
        (shape,),
        4,
        (Given(4, ways=EAGER), Given(3, ways=APART), Given(2, ways=TOGETHER), Given(4, ways=EAGER)),
        batch=3,
    )


def _positions(
    block_size: int, width: int, groups: int = 2, ranks: int = 1, interleave: int | None = None
) -> Plan:
    """Plan positions that are large though inside their rows, and windows that reach as far."""
    shape = Shape(groups=groups, width=width, block_size=block_size, tokens=300, windows=True)
    shape.interleave = interleave
    shape.cp, shape.rows, shape.ranks = ranks > 1, 4, ranks
    return _few(
        shape,
        Given(4, 300, EAGER),
        Given(3, 300, APART),
        Given(2, 290, TOGETHER),
        Given(4, ways=GATHERED),
        Given(4, 9, EAGER),
    )


def _windows(rows: int, width: int, groups: int) -> Plan:
    shape = Shape(groups=groups, rows=rows, width=width, tokens=60, windows=True, cp=False)
    ways = (EAGER, TOGETHER, GATHERED, *[EAGER] * (2 if rows < 10 else 0))
    # Few batches of other plans are as large and go into the caller's outputs.
    outs = [Given(rows, ways=EAGER, out=3)] if rows > 32 else []
    return _large(shape, *[Given(rows, ways=way) for way in ways], *outs)


def _writes(writes: int, rows: int, width: int, groups: int = 1) -> Plan:
    shape = Shape(groups=groups, rows=rows, width=width, tokens=30, options=0.2)
    given = (
        Given(2, ways=EAGER, writes=writes),
        Given(3, ways=TOGETHER, writes=writes // 8),
        Given(2, ways=CAPTURED, writes=max(9, writes * 3 // 5)),
    )
    return Plan("", (shape,), 3, given, batch=2, captured=0.0)


def _records(*counts: int) -> Plan:
    """Plan writes of several ids to each of many rows, few of them in the batch."""
    shape = Shape(groups=1, rows=max(counts) + 9, width=12, tokens=20, options=0.2)
    return _large(shape, *[Given(2, ways=EAGER, writes=one, ids=3) for one in counts])


def _writes_and_batch(writes: int, rows: int) -> Plan:
    """Plan a large batch with a staged write to most rows, of one id or of several."""
    shape = Shape(groups=1, rows=rows, width=9, tokens=2 * rows, options=0.2)
    return _large(shape, Given(rows, ways=EAGER, writes=writes, ids=1))


def _quiet(*quiet: int) -> Plan:
    """Plan long writes, of more ids than buffers first have room for, around quiet applies."""
    shape = Shape(groups=1, rows=3, tokens=6, width=4_000)
    steps = [
        given
        for one in quiet
        for given in (
            Given(2, ways=EAGER, quiet=one, writes=2, ids=1_900),
            Given(2, ways=EAGER, writes=1, ids=1),
        )
    ]
    return _few(shape, Given(2, ways=EAGER, writes=2, ids=1_500), *steps)


def _long(steps: int) -> Plan:
    """Plan many steps that write one row, while others stay as written or restored.

    Most requests come at the beginning and at the end. The last ones thus meet the effects of 64,
    128 or 256 steps before, whatever counts the steps.
    """
    shape = Shape(groups=1, rows=4, tokens=3, width=40, options=0.1)
    begun = (
        Given(4, ways=EAGER, writes=4, ids=2),
        Given(4, ways=EAGER, state="snapshot"),  # of rows that are longer by the restore
        *[Given(4, ways=EAGER, writes=1)] * 20,
        *[Given(4, ways=EAGER, writes=1, ids=3)] * 6,
        Given(4, ways=EAGER, state="restore"),
        *[Given(4, ways=EAGER)] * 10,
    )
    ended = [Given(4, ways=EAGER)] * 52
    between = [Given(ways=EAGER)] * (steps - len(begun) - len(ended))
    given = (*begun, *between, *ended)
    plan = Plan("", (shape,), steps, given, batch=3, writes=1, ways=(EAGER,), state=0.0)
    plan.idle, plan.refused, plan.captured, plan.stage, plan.busy = 0.85, 0.0, 0.0, 1.0, 1
    # The written row becomes the longest, and then short again.
    plan.full, plan.overwrite = 0.01, 0.03
    return plan


def _stale(steps: int) -> Plan:
    """Plan rows written in steps, then apart, then read in many steps that write another row.

    Remains of the first steps are thus met whenever a count of steps begins anew.
    """
    shape = Shape(groups=1, rows=2, tokens=6, width=6, options=0.1)
    begun = (
        *[Given(2, ways=EAGER, writes=2, ids=1)] * 2,
        Given(2, ways=APART, writes=2, ids=1, overwrite=True),
    )
    between = [Given(2, 2, EAGER, padded=2)] * (steps - len(begun))
    plan = _few(shape, *begun, *between)
    plan.writes, plan.busy, plan.stage, plan.state, plan.captured = 1, 1, 1.0, 0.0, 0.0
    return plan


def _far_rows(rows: int) -> Plan:
    """Plan a table of many rows, and use the ones beside powers of two."""
    shape = Shape(groups=1, rows=rows, width=4, tokens=40, options=0.2)
    few = _few(
        shape,
        Given(9, ways=EAGER, writes=9, ids=1),
        Given(12, ways=EAGER, writes=12, ids=3),
        Given(5, ways=APART, writes=9),
        Given(9, ways=TOGETHER, writes=5, state="snapshot"),
        Given(7, ways=EAGER, writes=12, ids=2, state="restore"),
        Given(7, ways=CAPTURED, writes=9),
    )
    beside = [2**bits + by for bits in (8, 12, 13, 14, 15) for by in (-1, 0, 9)]
    few.rows = (0, *[row for row in beside if row < rows], rows - 1)
    few.state = few.captured = 0.0
    return few


def _interleaved(steps: int) -> Plan:
    """Plan steps with writes, steps without, and applies in between, of the same few rows."""
    shape = Shape(groups=1, rows=2, tokens=4, width=30, options=0.1)
    plan = Plan("", (shape,), steps, batch=2, writes=1, ways=(EAGER, EAGER, ("apply",), TOGETHER))
    plan.refused, plan.captured, plan.state, plan.stage, plan.again = 0.0, 0.0, 0.02, 0.5, 0.0
    return plan


def _one(width: int, tokens: int) -> Plan:
    return Plan("", (Shape(groups=1, rows=1, width=width, tokens=tokens),), 8)


EXTREMES: Final[tuple[Extreme, ...]] = (
    # Each dimension at its largest, and beside thresholds.
    Extreme("one row, one column", lambda: _one(1, 1)),
    Extreme("one row, many columns", lambda: _one(40, 9)),
    Extreme("1,025 tokens in a step", lambda: _tokens_of_a_step(1_025)),
    Extreme("4,097 tokens in a step", lambda: _tokens_of_a_step(4_097)),
    Extreme("positions of 2**42", lambda: _positions(2**31 - 1, 3_000)),
    Extreme("positions beside 2**31", lambda: _positions(2**24 + 1, 140)),
    Extreme("2 ranks", lambda: _cp(2, 2)),
    Extreme("12 ranks", lambda: _cp(12, 2)),
    Extreme("9 groups", lambda: _groups(9)),
    Extreme("33 groups", lambda: _groups(33)),
    Extreme("66,000 columns", lambda: _far_columns(66_000)),
    Extreme("65,536 columns", lambda: _far_columns(65_536)),
    Extreme("1,025 columns", lambda: _width(1_025)),
    Extreme("513 columns", lambda: _width(513)),
    Extreme("40,000 tokens", lambda: _tokens(40_000)),
    Extreme("8,193 tokens", lambda: _tokens(8_193)),
    Extreme(
        "long requests and short ones", lambda: _spreads("runs", "turns", "long first", "mates")
    ),
    Extreme("requests of one token or none", lambda: _spreads("gaps", "ones", "long last", "one")),
    Extreme("520 writes", lambda: _writes(520, 550, 20)),
    Extreme("as many writes as fit a program", lambda: _records(64, 33, 128, 16, 65, 32, 63)),
    Extreme("65 writes to 3 rows", lambda: _writes(65, 3, 1_000, 2)),
    Extreme("300 steps", lambda: _long(300)),
    Extreme("steps with writes and without", lambda: _interleaved(60)),
    Extreme("steps with nothing staged", lambda: _quiet(70, 300, 1_030)),
    Extreme("several sets of outputs", lambda: _outputs(2)),
    Extreme("40 sets of outputs", lambda: _sets(40)),
    Extreme("block sizes of no power of two", _odd_blocks),
    Extreme(
        "1,030 rows",
        lambda: _rows(1_030, GATHERED, MAPPED, starts="mates"),
    ),
    Extreme("513 rows", lambda: _rows(513, GATHERED, starts="runs")),
    Extreme("257 rows", lambda: _rows(257, TOGETHER, starts="turns")),
    Extreme("300 rows of few tokens", lambda: _rows_and_tokens(300, 500)),
    Extreme("129 rows", lambda: _rows(129, APART, starts="turns")),
    Extreme("65 rows", lambda: _rows(65, EAGER, CAPTURED)),
    Extreme("33 rows", lambda: _rows(33, EAGER, APART, starts="long first")),
    # Pairs of them.
    Extreme("130 rows of 8 groups", lambda: _rows_and_groups(130, 8, 900, EAGER)),
    Extreme("130 rows of 8 groups, captured", lambda: _captured_of_groups(130, 8, 20)),
    Extreme(
        "62 rows of 17 groups, apart",
        lambda: _rows_of_groups_padded(62, 17, 12, ("apply", SLOTS, GATHER)),
    ),
    Extreme("short rows of 1,100 columns", lambda: _short_rows(1_100)),
    Extreme("40 rows of 3,000 columns", lambda: _rows_and_width(40, 3_000)),
    Extreme("8 groups of 4,100 columns", lambda: _groups_and_width(8, 4_100)),
    Extreme("8 groups of 3,000 tokens", lambda: _tokens_and_groups(3_000, 8)),
    Extreme("130 rows of 9,000 tokens", lambda: _tokens_and_rows(9_000, 130)),
    Extreme("7 ranks, 9 groups", lambda: _cp(7, 9)),
    Extreme("5 ranks, 40 rows", lambda: _rows_and_cp(40)),
    Extreme("windows, 5 groups", lambda: _windows(9, 80, 5)),
    Extreme("windows, 40 rows", lambda: _windows(40, 12, 1)),
    Extreme("windows, 2,000 columns", lambda: _windows(3, 2_000, 2)),
    Extreme("large positions, 7 groups", lambda: _positions(3 * 2**26, 40, 7)),
    Extreme("130 writes, 130 rows", lambda: _writes_and_batch(130, 130)),
    Extreme("66 writes, 6 groups", lambda: _writes(66, 70, 12, 6)),
    # Outputs of their own size, and writes that wait.
    Extreme("more tokens than the layout", lambda: _beyond_the_layout(64, 200, 129, 65)),
    Extreme("many more tokens than the layout", lambda: _beyond_the_layout(9, 1_100, 33)),
    Extreme("what waits, 40 columns", lambda: _waiting(40, 1)),
    Extreme("large positions, 3 ranks", lambda: _positions(3 * 2**26, 40, 1, 3)),
    Extreme("large positions, 4 ranks", lambda: _positions(2**27, 70, 1, 4)),
    Extreme("what waits, 260 columns", lambda: _waiting(260, 2)),
    Extreme("what waits, 1,300 columns", lambda: _waiting(1_300, 1)),
    Extreme("appends between overwrites", lambda: _appends_and_overwrites(160, 5, 300)),
    Extreme("132 steps beside rows at rest", lambda: _stale(132)),
    Extreme("a table of 32,767 rows", lambda: _far_rows(32_767)),
    Extreme("blocks of 2**31 tokens over 3 ranks", lambda: _positions(2**30, 40, 1, 3, 2**30)),
    Extreme("positions of 2**60 over ranks", lambda: _positions(2**30, 1_000, 1, 2**20)),
)
"""The extremes that every run plays first, each once; a short run plays only some."""

LARGER: Final[tuple[Extreme, ...]] = (
    Extreme("65 groups", lambda: _groups(65)),
    Extreme("100 groups", lambda: _groups(100)),
    Extreme("300,000 columns", lambda: _far_columns(300_000)),
    Extreme("131,072 columns", lambda: _far_columns(131_072)),
    Extreme("33,000 columns", lambda: _width(33_000)),
    Extreme("140,000 tokens", lambda: _tokens(140_000)),
    Extreme("66,000 tokens", lambda: _tokens(66_000)),
    Extreme("3,000 writes", lambda: _writes(3_000, 1_200, 20)),
    Extreme("1,100 steps", lambda: _long(1_100)),
    Extreme("1,030 steps beside rows at rest", lambda: _stale(1_030)),
    Extreme("400 steps with writes and without", lambda: _interleaved(400)),
    Extreme("300 sets of outputs", lambda: _sets(300)),
    Extreme("32,767 rows", lambda: _rows(32_767, GATHERED)),
    Extreme("4,097 rows", lambda: _rows(4_097, TOGETHER)),
    Extreme("2,049 rows", lambda: _rows(2_049, TOGETHER)),
)
"""The extremes that `--deep` plays after all scenarios of a default run."""
