"""How the writes of a step reach the tables: by a call per request, or one for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bt_bench.workloads.steps import Append


@dataclass(frozen=True)
class BatchedAppends:
    """Appends as a scheduler holds them, and as `append_many` takes them: a list per argument.

    Args:
        rows: request row, one per append.
        block_ids: per append its lists of block ids, one per group; the very lists of the appends.
        overwrite: one per append.
    """

    rows: list[int]
    block_ids: list[tuple[list[int], ...]]
    overwrite: list[bool]

    @classmethod
    def of(cls, appends: Sequence[Append]) -> BatchedAppends:
        """Those of some appends, in their order."""
        return cls(
            [append.row for append in appends],
            [append.block_ids for append in appends],
            [append.overwrite for append in appends],
        )


def copied(append: Append) -> Append:
    """The same writes in lists of their own."""
    return replace(append, block_ids=tuple(list(ids) for ids in append.block_ids))


def append_many_of(tables: Any) -> Callable[..., object] | None:
    """The method that stages all requests of a step in one call, where tables have it."""
    append_many: Callable[..., object] | None = getattr(tables, "append_many", None)
    return append_many if callable(append_many) else None


def append_each(tables: Any, appends: Sequence[Append]) -> None:
    """Stages writes by a call for each."""
    append_block_ids = tables.append_block_ids
    for append in appends:
        append_block_ids(append.row, append.block_ids, append.overwrite)


def staging_call(
    tables: Any, appends: Sequence[Append], batched: BatchedAppends
) -> Callable[[], object]:
    """The call that stages the writes of a step, ready to be made.

    It is one of `append_many` where the tables have that, and else a loop over the requests.

    Args:
        tables: of a variant.
        appends: what is staged.
        batched: the same, made before, so that no list is made while staging is timed.
    """
    append_many = append_many_of(tables)
    if append_many is None:
        return partial(append_each, tables, appends)
    return partial(append_many, batched.rows, batched.block_ids, batched.overwrite)
