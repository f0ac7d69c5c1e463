"""Smaller scenarios: fewer calls and writes, smaller layouts and batches, fewer options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
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


@dataclass
class _State:
    """The state of a table that determines which calls are legal.

    Args:
        owned: `[G, rows]`, the blocks of each row.
        captured: numbers of its captured steps.
        validates: whether it reads the contents of its arguments.
        is_settled: whether the number of dirty rows is not up to the variant.
        is_replayed: whether the last publication was replayed, since it is not settled.
    """

    owned: Ints
    captured: set[int] = field(default_factory=set)
    validates: bool = False
    is_settled: bool = True
    is_replayed: bool = False


def is_legal(scenario: Scenario) -> bool:
    """Return whether rows fit their tables, and snapshots and captured steps exist."""
    states: dict[int, _State] = {}
    kept: dict[int, Ints] = {}
    for call in flat(scenario.calls):
        layout = scenario.layouts[call.table]
        if call.table not in states or isinstance(call, Renew):
            rows = np.zeros((layout.num_groups, layout.max_num_reqs), dtype=np.int64)
            states[call.table] = _State(rows)
        if not _takes(states[call.table], call, layout, kept):
            return False
    return True


def _takes(state: _State, call: Call, layout: TableLayout, kept: dict[int, Ints]) -> bool:
    """Return whether a call is legal now, and bring the state up to date."""
    room = layout.max_num_batched_tokens
    if isinstance(call, Run) and not call.batch.has_own_slots and call.batch.tokens > room:
        return False
    match call:
        case Stage():
            return _count(state.owned, layout, call.writes)
        case Capture():
            state.captured.add(call.key)
            state.is_settled = state.is_replayed = False
        case Publish():
            state.is_settled, state.is_replayed = False, call.replay is not None
            writes = (*call.rounds, call.later)
            if call.key not in state.captured or not all(
                _count(state.owned, layout, each) for each in writes
            ):
                return False
            if call.step is not None and call.step.reqs < layout.max_num_reqs:
                return False
            return call.restored is None or _restore(state, kept, call.restored)
        case Run() if not state.is_settled and call.method != SLOTS:
            few = call.batch.reqs < layout.max_num_reqs and not state.is_replayed
            state.is_settled = True
            return not few and call.poison is None and call.batch.out is None
        case Dummies() | Replace():
            return state.is_settled
        case SetFlag() if call.name == "num_dirty_rows":
            return state.is_settled and call.value <= layout.max_num_reqs
        case SetFlag() if call.name == "validate":
            state.validates = bool(call.value)
        case Refused():
            return state.validates or call.what not in refusals.VALIDATED
        case Snapshot():
            kept[call.key] = state.owned.copy()
            return state.is_settled
        case Restore():
            return _restore(state, kept, call.key)
    return True


def _restore(state: _State, kept: dict[int, Ints], key: int) -> bool:
    """Restore the blocks of rows; return whether there is such a snapshot."""
    if key in kept:
        state.owned[:] = kept[key]
    return key in kept


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
