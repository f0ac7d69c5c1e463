"""Smaller scenarios: fewer calls and writes, smaller layouts and batches, fewer options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from bt_bench.suites.block_tables.exploring import refusals
from bt_bench.suites.block_tables.exploring.calls import (
    SLOTS,
    Apply,
    Batch,
    Call,
    Capture,
    Dummies,
    Form,
    Ints,
    Publish,
    Refused,
    Renew,
    Replace,
    Restore,
    Run,
    Scenario,
    SetFlag,
    Snapshot,
    Stage,
    Write,
    flat,
)
from bt_bench.suites.block_tables.exploring.shrink_layouts import smaller_layouts
from bt_bench.suites.block_tables.exploring.tame import is_tame
from bt_kernels.layout import TableLayout

Item = TypeVar("Item")
Part = TypeVar("Part", bound=Any)


def smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield legal scenarios that are a little simpler, the boldest first."""
    for candidate in _candidates(scenario):
        if is_legal(candidate) and is_tame(candidate):
            yield candidate


def is_legal(scenario: Scenario) -> bool:
    """Return whether rows fit their tables, and snapshots and captured steps exist."""
    owned: dict[int, Ints] = {}
    captured: set[tuple[int, int]] = set()
    validating: set[int] = set()
    unsettled: set[int] = set()  # tables whose number of dirty rows is up to the variant
    replayed: set[int] = set()  # of these, tables whose last publication was replayed
    kept: dict[int, tuple[TableLayout, Ints]] = {}
    for call in flat(scenario.calls):
        at = call.table
        layout = scenario.layouts[at]
        counts = owned.setdefault(
            at, np.zeros((layout.num_groups, layout.max_num_reqs), dtype=np.int64)
        )
        room = layout.max_num_batched_tokens
        if isinstance(call, Run) and not call.batch.has_own_slots and call.batch.tokens > room:
            return False
        match call:
            case Stage():
                if not _count(counts, layout, call.writes):
                    return False
            case Capture():
                captured.add((at, call.key))
                unsettled.add(at)
                replayed.discard(at)
            case Publish():
                unsettled.add(at)
                (replayed.discard if call.replay is None else replayed.add)(at)
                if (at, call.key) not in captured:
                    return False
                writes = (*call.rounds, call.later)
                if not all(_count(counts, layout, each) for each in writes):
                    return False
                if call.step is not None and call.step.reqs < layout.max_num_reqs:
                    return False
                if call.restored is not None:
                    if call.restored not in kept:
                        return False
                    counts[:] = kept[call.restored][1]
            case Run() if at in unsettled and call.method != SLOTS:
                few = call.batch.reqs < layout.max_num_reqs and at not in replayed
                if few or call.poison is not None or call.batch.out is not None:
                    return False
                unsettled.discard(at)
            case Dummies() | Snapshot() | Replace() if at in unsettled:
                return False
            case SetFlag() if call.name == "num_dirty_rows":
                if at in unsettled or call.value > layout.max_num_reqs:
                    return False
            case SetFlag() if call.name == "validate":
                (validating.add if call.value else validating.discard)(at)
            case Refused() if call.what in refusals.VALIDATED and at not in validating:
                return False
            case Renew():
                counts[:] = 0
                captured = {one for one in captured if one[0] != at}
                for states in (validating, unsettled, replayed):
                    states.discard(at)
            case Snapshot():
                kept[call.key] = layout, counts.copy()
            case Restore():
                if call.key not in kept:
                    return False
                counts[:] = kept[call.key][1]
    return True


def _count(counts: Ints, layout: TableLayout, writes: Sequence[Write]) -> bool:
    """Count the blocks of writes; return whether all rows still fit their tables."""
    for write in writes:
        lengths = np.array([len(ids) for ids in write.block_ids])
        counts[:, write.row] = lengths + (0 if write.overwrite else counts[:, write.row])
        if (counts[:, write.row] > layout.widths).any():
            return False
    return True


def _candidates(scenario: Scenario) -> Iterator[Scenario]:
    calls = scenario.calls
    for rest in _shorter(calls):
        yield replace(scenario, calls=rest)
    yield from smaller_layouts(scenario)
    yield from _plainer(scenario, in_flight=None, kept=False, garbage=None, offset=0, rows_before=0)
    for place, call in enumerate(calls):
        for simpler in _simpler(call):
            yield replace(scenario, calls=(*calls[:place], simpler, *calls[place + 1 :]))


def _shorter(items: tuple[Item, ...]) -> Iterator[tuple[Item, ...]]:
    """Yield the items with a part left out: each half, then each quarter, down to single ones."""
    size = len(items)
    while size > 1:
        size = (size + 1) // 2
        for start in range(0, len(items), size):
            yield items[:start] + items[start + size :]


def _plainer(part: Part, **plain: object) -> Iterator[Part]:
    """Yield a part of a scenario with one of these fields made plain; not if it is plain."""
    for name, value in plain.items():
        if getattr(part, name) != value:
            yield replace(part, **{name: value})


def _simpler(call: Call) -> Iterator[Call]:
    if isinstance(call, Stage):
        yield from _fewer_writes(call)
    if isinstance(call, Run):
        yield from _plainer(call, same_tensors=False, spoil=False, poison=None)
    if isinstance(call, Apply) and call.times > 1:
        yield replace(call, times=call.times // 2)
        yield replace(call, times=call.times - 1)
    if isinstance(call, Publish):
        if call.meanwhile is not None:
            yield replace(call, meanwhile=None)
            yield call.meanwhile
            for simpler in _simpler(call.meanwhile):
                if isinstance(simpler, Publish):
                    yield replace(call, meanwhile=simpler)
        yield from _plainer(call, later=())
        if call.replay is not None or call.restored is not None or call.step is not None:
            yield replace(call, replay=None, restored=None, step=None)
        if len(call.rounds) > 1:
            yield replace(call, rounds=call.rounds[1:])
            yield replace(call, rounds=call.rounds[:-1])
    if isinstance(call, (Run, Refused, Capture)) and call.batch is not None:
        for batch in _simpler_batches(call.batch):
            yield replace(call, batch=batch)


def _fewer_writes(call: Stage) -> Iterator[Stage]:
    writes = call.writes
    for rest in _shorter(writes):
        yield replace(call, writes=rest)
    yield from _plainer(call, form=Form.LIST, many=False, shared=False)
    for place, write in enumerate(writes):
        halves = tuple(ids[: len(ids) // 2] for ids in write.block_ids)
        if halves != write.block_ids:
            fewer = replace(write, block_ids=halves)
            yield replace(call, writes=(*writes[:place], fewer, *writes[place + 1 :]))


def _simpler_batches(batch: Batch) -> Iterator[Batch]:
    if batch.out is not None:
        yield replace(batch, out=None)
    if batch.computed is not None:
        yield replace(batch, computed=None)
    if batch.int64 and (batch.rows < 2**31).all():
        yield replace(batch, int64=False)
    reqs, tokens = len(batch.rows), int(batch.starts[-1])
    if batch.reqs > reqs:
        yield replace(batch, reqs=reqs)
    if batch.tokens > tokens or len(batch.positions) > tokens:
        yield replace(batch, tokens=tokens, positions=batch.positions[:tokens])
    for keep in _parts(reqs):
        yield _of_requests(batch, keep)
    if tokens:
        fewer = tokens // 2
        yield replace(
            batch,
            starts=np.minimum(batch.starts, fewer),
            positions=batch.positions[:fewer],
            tokens=fewer,
        )


def _parts(count: int) -> Iterator[Sequence[int]]:
    """Yield the numbers below a count, each time with another part left out."""
    if count == 0:
        return
    size = count
    while size >= 1:
        for start in range(0, count, size):
            yield [*range(start), *range(start + size, count)]
        if size == 1 or (count > 64 and size <= count // 8):
            return
        size = (size + 1) // 2


def _of_requests(batch: Batch, keep: Sequence[int]) -> Batch:
    lengths = np.diff(batch.starts)[list(keep)]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    parts = [batch.positions[batch.starts[at] : batch.starts[at + 1]] for at in keep]
    positions = np.concatenate([*parts, np.zeros(0, dtype=np.int64)]).astype(np.int64)
    return replace(
        batch,
        rows=batch.rows[list(keep)],
        starts=starts,
        positions=positions,
        reqs=len(keep),
        tokens=len(positions),
    )
