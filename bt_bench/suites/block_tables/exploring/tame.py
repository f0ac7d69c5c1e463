"""Scenarios without calls that an opponent leaves undefined, or defines differently."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from bt_bench.suites.block_tables.exploring.calls import (
    STEP,
    Apply,
    Batch,
    Call,
    Dummies,
    Form,
    Ints,
    Load,
    Mark,
    Other,
    Refused,
    Renew,
    Replace,
    Restore,
    Run,
    Scenario,
    SetFlag,
    Stage,
    Write,
)
from bt_bench.suites.block_tables.vllm.differences import (
    INT32_RANKS,
    INT32_SLOTS,
    OUT_PTRS,
    POSITIONS_OUTSIDE,
    REFUSALS,
    WRITES_TO_A_ROW,
)
from bt_kernels.layout import INT32_MAX, TableLayout

TAMED = frozenset(
    {WRITES_TO_A_ROW, POSITIONS_OUTSIDE, INT32_SLOTS, INT32_RANKS, REFUSALS, OUT_PTRS}
)
"""The differences that scenarios can avoid."""


def tamed(scenario: Scenario, differences: Collection[str]) -> Scenario:
    """Return the scenario without any difference in `TAMED`; itself if there are none."""
    without = TAMED.intersection(differences)
    if not without:
        return scenario
    scenario = replace(scenario, layouts=tuple(map(_with_int32_blocks, scenario.layouts)))
    # Garbage that a table holds may be ids whose slots are beyond 2**31.
    return replace(scenario, calls=_calls(scenario), garbage=None, without=without)


def is_tame(scenario: Scenario) -> bool:
    """Return whether a scenario still avoids its differences, after calls were left out."""
    tame = all(_with_int32_blocks(layout) == layout for layout in scenario.layouts)
    return not scenario.without or (tame and len(_calls(scenario)) == len(scenario.calls))


def _with_int32_blocks(layout: TableLayout) -> TableLayout:
    """Return the layout, with groups unshared whose blocks would have 2**31 tokens or more."""
    shared = tuple(tokens <= INT32_MAX for tokens in layout.tokens_per_block)
    both = zip(layout.dcp_sharded, shared, strict=True)
    return replace(layout, dcp_sharded=tuple(was and fits for was, fits in both))


def _calls(scenario: Scenario) -> tuple[Call, ...]:
    """Return the calls of a scenario, tamed; a tame scenario keeps their number."""
    calls: list[Call] = []
    pending: dict[int, set[int]] = {}  # rows with an unapplied write, by table
    for call in scenario.calls:
        layout = scenario.layouts[call.table]
        if isinstance(call, Mark):
            calls.append(call)
            continue
        if call.table not in pending and not isinstance(call, Dummies):
            # The first contents of outputs are up to the opponent.
            calls.append(Dummies(call.table, layout.max_num_reqs, 0, poison=-2))
        rows = pending.setdefault(call.table, set())
        match call:
            # Flags, methods and refusals that only variants of this project have.
            case Refused() | SetFlag() | Other() | Replace():
                continue
            case Renew():
                del pending[call.table]
            case Stage():
                calls += _staged_apart(call, layout, rows)
                continue
            case Apply() | Restore():
                rows.clear()
            case Load():
                rows.clear()
                call = _small_contents(call, layout)
            case Run():
                if call.method == STEP:
                    rows.clear()
                call = replace(call, batch=_inside(call.batch, layout))
        calls.append(call)
    return tuple(calls)


def _staged_apart(call: Stage, layout: TableLayout, rows: set[int]) -> Iterator[Call]:
    """Yield the writes one by one, with an apply before a row gets a second staged write."""
    for write in call.writes:
        if write.row in rows:
            yield Apply(call.table)
            rows.clear()
        rows.add(write.row)
        yield replace(call, writes=(_small(write, layout),), many=False, form=Form.LIST)


def _small(write: Write, layout: TableLayout) -> Write:
    """Return the write with block ids whose slots are below 2**31."""
    lists = zip(write.block_ids, layout.block_sizes, strict=True)
    ids = tuple(tuple(one % (2**31 // size) for one in each) for each, size in lists)
    return replace(write, block_ids=ids)


def _small_contents(call: Load, layout: TableLayout) -> Load:
    """Return the contents likewise."""
    tables = zip(call.block_tables, layout.block_sizes, strict=True)
    small = [table % (2**31 // size) if size > 1 else table for table, size in tables]
    return replace(call, block_tables=tuple(small))


def _inside(batch: Batch, layout: TableLayout) -> Batch:
    """Return the batch with all positions inside the rows of all groups that have slots."""
    groups = zip(layout.widths, layout.tokens_per_block, layout.slot_mapping_enabled, strict=True)
    lengths = [width * tokens for width, tokens, enabled in groups if enabled]
    positions: Ints = np.mod(batch.positions, min(lengths, default=1))
    rows: Ints = np.where(batch.rows >= layout.max_num_reqs, -1, batch.rows)
    return replace(batch, rows=rows, positions=positions, pointers=True, numpy_sizes=False)
