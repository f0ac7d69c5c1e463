"""Equivalent ways to stage a step's writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bt_bench.suites.block_tables.calls import stage
from bt_bench.suites.block_tables.inputs import (
    BatchedAppends,
    StepInputs,
    append_each,
    append_many_of,
)
from bt_bench.suites.block_tables.workloads import Append


@dataclass(frozen=True)
class StagingWay:
    """A way to stage.

    Args:
        title: name in messages; empty for the way that is timed.
        stage: stages the writes of a step in the given tables.
    """

    title: str
    stage: Callable[[Any, StepInputs], None]


def _each(tables: Any, step: StepInputs) -> None:
    append_each(tables, step.appends)


def _many(tables: Any, appends: Sequence[Append]) -> None:
    many = BatchedAppends.of(appends)
    tables.append_many(many.rows, many.block_ids, many.overwrite)


def _mixed(tables: Any, step: StepInputs) -> None:
    """Stage a third of the requests in one call, a third one by one, and the rest in one call.

    Writes to one row can thus come from both kinds of call.
    """
    appends = step.appends
    first = (len(appends) + 2) // 3
    last = first + (len(appends) + 1) // 3
    _many(tables, appends[:first])
    append_each(tables, appends[first:last])
    _many(tables, appends[last:])


TIMED = StagingWay("", stage)
# The timed way comes first, since many windows have only one step.
BOTH = (
    TIMED,
    StagingWay("append_block_ids", _each),
    StagingWay("append_many and append_block_ids", _mixed),
)


def staging_way(tables: Any, turn: int) -> StagingWay:
    """Return the way to stage a step; tables with `append_many` take those in `BOTH` in turn.

    Args:
        tables: the variant's tables.
        turn: number of the step; at 0 the way is the timed one.
    """
    return TIMED if append_many_of(tables) is None else BOTH[turn % len(BOTH)]
