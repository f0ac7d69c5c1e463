"""Scenarios with smaller layouts: fewer groups, rows, columns, tokens and options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bt_bench.suites.block_tables.exploring.calls import (
    Batch,
    Call,
    Capture,
    Dummies,
    Publish,
    Refused,
    Run,
    Scenario,
    Stage,
    Write,
    each,
    flat,
)
from bt_kernels.layout import TableLayout

_PER_GROUP = (
    "block_sizes",
    "widths",
    "slot_mapping_enabled",
    "sliding_window_reach",
    "dcp_sharded",
)


def smaller_layouts(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario with each layout a little smaller; rows may then not fit their tables.

    Tables of one layout stay alike, since snapshots go from one to the other.
    """
    used = {call.table for call in flat(scenario.calls)}
    layouts = dict.fromkeys(scenario.layouts[at] for at in sorted(used))
    for layout in layouts:
        tables = {at for at, one in enumerate(scenario.layouts) if one == layout}
        calls = [call for call in flat(scenario.calls) if call.table in tables]
        yield from _fewer_groups(scenario, tables, layout)
        yield from _fewer_rows(scenario, tables, layout, calls)
        for smaller in _simpler(layout, calls):
            yield _with(scenario, tables, smaller)


def _with(scenario: Scenario, tables: set[int], layout: TableLayout) -> Scenario:
    """Return the scenario with another layout of some tables, and calls cut to its sizes."""
    layouts = tuple(layout if at in tables else one for at, one in enumerate(scenario.layouts))
    calls = _on_tables(scenario, tables, lambda call: _within(call, layout))
    return replace(scenario, layouts=layouts, calls=calls)


def _on_tables(
    scenario: Scenario, tables: set[int], change: Callable[[Call], Call]
) -> tuple[Call, ...]:
    """Return all calls, with a change applied to the ones on some tables."""
    return tuple(
        each(call, lambda one: change(one) if one.table in tables else one)
        for call in scenario.calls
    )


def _fewer_groups(scenario: Scenario, tables: set[int], layout: TableLayout) -> Iterator[Scenario]:
    """Yield the scenario with half of the groups, or all but one."""
    count = layout.num_groups
    if count == 1:
        return
    halves = [range(count // 2), range(count // 2, count)] if count > 2 else []
    for keep in [*halves, *([g for g in range(count) if g != left] for left in range(count))]:
        fields: dict[str, Any] = {
            name: tuple(getattr(layout, name)[g] for g in keep) for name in _PER_GROUP
        }
        made = _calls(scenario, tables, partial(_of_groups, keep=keep))
        yield _with(made, tables, replace(layout, **fields))


def _of_groups(write: Write, keep: Sequence[int]) -> Write:
    return replace(write, block_ids=tuple(write.block_ids[group] for group in keep))


def _fewer_rows(
    scenario: Scenario, tables: set[int], layout: TableLayout, calls: Sequence[Call]
) -> Iterator[Scenario]:
    """Yield the scenario with only the rows in use, side by side or where they are."""
    used = sorted(_rows_of(calls, layout))
    longest = max((len(batch.rows) for call in calls for batch in _batches(call)), default=0)
    for kept in ([*range(len(used))], used):
        places = dict(zip(used, kept, strict=True))
        rows = max(1, longest, max(kept, default=0) + 1)
        if rows < layout.max_num_reqs:
            moved_batch = partial(_moved, places=places, before=layout.max_num_reqs, now=rows)
            moved = _calls(scenario, tables, partial(_moved_write, places=places), moved_batch)
            yield _with(moved, tables, replace(layout, max_num_reqs=rows))


def _moved_write(write: Write, places: Mapping[int, int]) -> Write:
    return replace(write, row=places[write.row])


def _moved(batch: Batch, places: Mapping[int, int], before: int, now: int) -> Batch:
    """Return the batch with its rows elsewhere."""
    rows = [places.get(row, row) for row in batch.rows.tolist()]
    computed = batch.computed
    if computed is not None:
        moved = np.resize(computed, now)
        for row, place in places.items():
            moved[place] = computed[row]
        computed = moved
    beyond = batch.rows >= before
    made = np.where(beyond, batch.rows, np.array(rows, dtype=np.int64))
    return replace(batch, rows=made.astype(np.int64), computed=computed)


def _rows_of(calls: Sequence[Call], layout: TableLayout) -> set[int]:
    """Return the rows that calls name."""
    found: set[int] = set()
    for call in calls:
        found |= {write.row for write in _writes(call)}
        for batch in _batches(call):
            found |= {row for row in batch.rows.tolist() if 0 <= row < layout.max_num_reqs}
    return found


def _simpler(layout: TableLayout, calls: Sequence[Call]) -> Iterator[TableLayout]:
    """Yield the layout with fewer options, tokens or columns, or with smaller blocks."""
    plain = (True,) * layout.num_groups
    if layout.cp_size > 1:
        yield replace(layout, cp_size=1, cp_rank=0, cp_interleave=1, dcp_sharded=plain)
    if not all(layout.slot_mapping_enabled):
        yield replace(layout, slot_mapping_enabled=plain)
    if any(layout.sliding_window_reach):
        yield replace(layout, sliding_window_reach=(0,) * layout.num_groups)
    tokens = max((len(b.positions) for call in calls for b in _batches(call)), default=1)
    needed = max((int(b.starts[-1]) for call in calls for b in _batches(call)), default=1)
    for fewer in dict.fromkeys((max(1, needed), max(1, tokens))):
        if fewer < layout.max_num_batched_tokens:
            yield replace(layout, max_num_batched_tokens=fewer)
    longest = [0] * layout.num_groups
    for call in calls:
        for write in _writes(call):
            longest = [max(n, len(ids)) for n, ids in zip(longest, write.block_ids, strict=True)]
    for group, width in enumerate(layout.widths):
        for narrower in dict.fromkeys((max(1, longest[group]), width // 2, width - 1)):
            if 0 < narrower < width:
                widths = (*layout.widths[:group], narrower, *layout.widths[group + 1 :])
                yield replace(layout, widths=widths)
    for group, size in enumerate(layout.block_sizes):
        if size > 16 and layout.cp_size == 1:
            sizes = (*layout.block_sizes[:group], 16, *layout.block_sizes[group + 1 :])
            yield replace(layout, block_sizes=sizes)


def _within(call: Call, layout: TableLayout) -> Call:
    """Return the call, cut to the sizes of a layout."""
    if isinstance(call, Dummies):
        tokens = min(call.tokens, layout.max_num_batched_tokens)
        return replace(call, reqs=min(call.reqs, layout.max_num_reqs), tokens=tokens)
    if isinstance(call, Refused):
        row, group = call.row % layout.max_num_reqs, call.group % layout.num_groups
        call = replace(call, row=row, group=group)
    return _on_batches(call, lambda batch: _batch_within(batch, layout))


def _batch_within(batch: Batch, layout: TableLayout) -> Batch:
    tokens, computed = batch.tokens, batch.computed
    if not batch.has_own_slots:
        tokens = min(tokens, layout.max_num_batched_tokens)
    if computed is not None:
        computed = computed[: layout.max_num_reqs]
    reqs = min(batch.reqs, layout.max_num_reqs)
    return replace(batch, reqs=reqs, tokens=tokens, computed=computed)


def _calls(
    scenario: Scenario,
    tables: set[int],
    on_write: Callable[[Write], Write],
    on_batch: Callable[[Batch], Batch] = lambda batch: batch,
) -> Scenario:
    """Return the scenario with all writes and batches of some tables changed."""
    calls = _on_tables(
        scenario, tables, lambda call: _on_batches(_on_writes(call, on_write), on_batch)
    )
    return replace(scenario, calls=calls)


def _writes(call: Call) -> Iterator[Write]:
    if isinstance(call, Stage):
        yield from call.writes
    if isinstance(call, Publish):
        for writes in (*call.rounds, call.later):
            yield from writes


def _batches(call: Call) -> Iterator[Batch]:
    if isinstance(call, (Run, Refused, Capture)) and call.batch is not None:
        yield call.batch
    if isinstance(call, Publish):
        yield from (batch for batch in (call.replay, call.step) if batch is not None)


def _on_writes(call: Call, change: Callable[[Write], Write]) -> Call:
    if isinstance(call, Stage):
        return replace(call, writes=tuple(map(change, call.writes)))
    if isinstance(call, Publish):
        rounds = tuple(tuple(map(change, writes)) for writes in call.rounds)
        return replace(call, rounds=rounds, later=tuple(map(change, call.later)))
    return call


def _on_batches(call: Call, change: Callable[[Batch], Batch]) -> Call:
    if isinstance(call, (Run, Refused, Capture)) and call.batch is not None:
        changed: Any = replace(call, batch=change(call.batch))
        return changed  # type: ignore[no-any-return]
    if isinstance(call, Publish):
        replay = None if call.replay is None else change(call.replay)
        step = None if call.step is None else change(call.step)
        return replace(call, replay=replay, step=step)
    return call
