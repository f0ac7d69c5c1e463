"""The ways to stage a step's writes, which must all be equivalent."""

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
        title: what messages call it; empty for the way that is timed.
        stage: stages the writes of a step in some tables.
    """

    title: str
    stage: Callable[[Any, StepInputs], None]


def _each(tables: Any, step: StepInputs) -> None:
    append_each(tables, step.appends)


def _many(tables: Any, appends: Sequence[Append]) -> None:
    many = BatchedAppends.of(appends)
    tables.append_many(many.rows, many.block_ids, many.overwrite)


def _mixed(tables: Any, step: StepInputs) -> None:
    """Stages a third of the requests in one call, a third one by one, and the rest in one call.

    So writes to the same row can come from both kinds of call.
    """
    appends = step.appends
    first = (len(appends) + 2) // 3
    last = first + (len(appends) + 1) // 3
    _many(tables, appends[:first])
    append_each(tables, appends[first:last])
    _many(tables, appends[last:])


TIMED = StagingWay("", stage)
# The one that is timed comes first, since many windows have only one step.
BOTH = (
    TIMED,
    StagingWay("append_block_ids", _each),
    StagingWay("append_many and append_block_ids", _mixed),
)


def staging_way(tables: Any, turn: int) -> StagingWay:
    """How a step is staged: tables that have both ways get each in turn, and then both mixed.

    Args:
        tables: of the variant.
        turn: counts steps; at 0 it is the way that is timed.
    """
    return TIMED if append_many_of(tables) is None else BOTH[turn % len(BOTH)]
