"""Calls that must be refused, each with one fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from bt_bench.suites.block_tables.exploring import refusals
from bt_bench.suites.block_tables.exploring.arguments import Arguments, in_form
from bt_bench.suites.block_tables.exploring.calls import Form, Refused
from bt_kernels.interface import TableState
from bt_kernels.layout import TableLayout


def wrong_call(
    call: Refused, tables: Any, layout: TableLayout, arguments: Arguments | None
) -> Callable[[], object]:
    """Return the wrong call, without making it.

    Args:
        call: the fault and its place.
        tables: the variant's tables.
        layout: layout of the tables.
        arguments: valid arguments, if the call has a batch.
    """
    method = getattr(tables, call.method)
    if call.batch is not None:
        assert arguments is not None
        right = arguments.without_more(call.batch.more)  # or a short one might be long enough
        if call.what in (refusals.OUT_OVERLAPS, refusals.OUT_TAKEN):
            faulty = replace(right, out=_overlapping(call, tables, right.out), out_ptrs=None)
        else:
            faulty = right.with_fault(call.what, layout, call.pick)
        return lambda: faulty.call(tables, call.method)
    if call.method == refusals.RESTORE:
        state = _of_another_layout(call, tables.snapshot())
        return lambda: method(state)
    if call.method in refusals.NUMBERS:
        number = _wrong_number(call, layout)
        return lambda: method(number)
    row, ids, overwrites = _wrong_write(call, tables, layout)
    if call.method == refusals.MANY:
        # Behind a valid write, of another row if there is one, which must not stay staged.
        good = [[5] for _ in range(layout.num_groups)]
        other = (call.row + 1) % layout.max_num_reqs
        overwrite = overwrites or other == row
        three: list[list[Any]] = [[other, row], [good, ids], [True, overwrite]]
        if call.what == refusals.TOO_WIDE_TOGETHER:
            fits = [[3] * width for width in layout.widths]
            three = [[row] * 2, [fits, [[3] for _ in fits]], [True, False]]
        elif call.pick // 3 % 2 and other != row:  # whose row comes twice
            three = [[other, *three[0]], [good, good, ids], [True, *three[2]]]
            three[2][1] = layout.widths.count(1) > 0
        if call.pick // 6 % 2 and isinstance(row, int) and row == call.row:
            for values, value in zip(three, (row, good, True), strict=True):
                values.append(value)  # overwrites the wrong write, still to be refused
        if call.what == refusals.LENGTHS:
            three[call.pick % 3].pop()
        return lambda: method(*three)
    return lambda: method(row, ids, overwrites)


def _overlapping(call: Refused, tables: Any, right: Any) -> list[torch.Tensor]:
    """Return an `out` whose first and last tensors share an element, or one overlaps a table."""
    out = list(right)
    if call.what == refusals.OUT_TAKEN or len(out) == 1:
        taken = (tables.block_tables if call.pick % 2 else tables.input_block_tables)[call.group]
        # Shifted by a row, where other rows still overlap.
        by = (0, -1, 1)[call.pick // 2 % 3] * taken.shape[1] * (len(taken) > 1)
        room = taken.untyped_storage().nbytes() // taken.element_size()
        if 0 <= (begin := taken.storage_offset() + by) <= room - taken.numel():
            taken = taken.as_strided(taken.shape, taken.stride(), begin)
        out[call.group] = taken
        return out
    first, second = (0, -1) if call.pick % 2 else (-1, 0)
    before, after = out[first], out[second]
    joined = before.new_zeros(before.numel() + after.numel() - 1)
    out[first] = joined[: before.numel()].view(before.shape)
    out[second] = joined[before.numel() - 1 :].view(after.shape)
    return out


def _of_another_layout(call: Refused, state: TableState) -> TableState:
    """Return the snapshot with one more row, column, group, or slot per group."""
    block, inputs = (
        [table.clone() for table in tables]
        for tables in (state.block_tables, state.input_block_tables)
    )
    slots = state.slot_mappings
    match call.pick % 4:
        case 0:
            block, inputs = ([_longer(one, 0) for one in each] for each in (block, inputs))
        case 1:
            at = call.group
            block[at], inputs[at] = _longer(block[at], 1), _longer(inputs[at], 1)
        case 2:
            block.append(block[0])
            inputs.append(inputs[0])
            slots = _longer(slots, 0)
        case 3:
            slots = _longer(slots, 1)
    return replace(state, block_tables=block, input_block_tables=inputs, slot_mappings=slots)


def _longer(table: torch.Tensor, dimension: int) -> torch.Tensor:
    """Return the table with its first row or column repeated behind the others."""
    return torch.cat([table, table.narrow(dimension, 0, 1)], dimension)


def _wrong_number(call: Refused, layout: TableLayout) -> Any:
    if call.what == refusals.NUMBER_ODD:
        return (0.5, 1.0, None)[call.pick % 3]
    of_rows = call.method == refusals.DUMMY_TABLES
    limit = layout.max_num_reqs if of_rows else layout.max_num_batched_tokens
    far = call.pick % 2 * 2**31
    return limit + 1 + far if call.what == refusals.NUMBER_ABOVE else -1 - far


def _wrong_write(call: Refused, tables: Any, layout: TableLayout) -> tuple[Any, Any, bool]:
    """Return row, lists of ids, and `overwrite` of a wrong write."""
    widths = np.array(layout.widths)
    many_of_one_row = call.method == refusals.MANY and layout.max_num_reqs == 1
    overwrite = call.overwrite or many_of_one_row
    room = widths if overwrite else widths - np.array(tables.num_blocks)[:, call.row]
    # All other groups get an id, which must not stay staged.
    ids = [[3] * min(1, int(one)) for one in room]
    row: Any = call.row
    match call.what:
        case refusals.ROW_ODD:
            row = (call.row + 0.5, float(call.row), None)[call.pick % 3]
        case refusals.ROW_BELOW:
            row = (-1, -layout.max_num_reqs, -(2**31))[call.pick % 3]
        case refusals.ROW_PAST:
            row = layout.max_num_reqs + (0, 1, 2**31)[call.pick % 3]
        case refusals.LIST_MISSING:
            ids.pop()
        case refusals.LIST_EXTRA:
            ids.append([3])
        case refusals.ID_ABOVE:
            ids[call.group] = [(2**31, 2**32, 2**40)[call.pick % 3]]
        case refusals.ID_BELOW:
            ids[call.group] = [-(2**31) - 1]
        case refusals.TOO_WIDE:
            ids[call.group] = [3] * (int(room[call.group]) + 1)
    form = list(Form)[call.pick // 3 % len(Form)]
    lists: Any = [in_form(each, form) for each in ids]
    if call.what == refusals.ID_ODD:
        odd: tuple[Any, ...] = (3.0, 2.5, np.float64(3.0), np.float32(2.5), None)
        lists[call.group] = [odd[call.pick % len(odd)]]
        if form is Form.ARRAY:
            lists[call.group] = np.array([3.0])
        elif form is Form.TUPLE:
            lists[call.group] = tuple(lists[call.group])
    elif call.what == refusals.IDS_ODD:
        lists[call.group] = (None, 7, 2.5, True)[call.pick % 4]
    elif call.what == refusals.LISTS_ODD:
        lists = (None, 7)[call.pick % 2]
    return row, lists, overwrite
