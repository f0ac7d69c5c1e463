"""Calls that have to be refused, with one thing wrong each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bt_bench.suites.block_tables.exploring import refusals
from bt_bench.suites.block_tables.exploring.arguments import Arguments, in_form
from bt_bench.suites.block_tables.exploring.calls import Form, Refused
from bt_kernels.layout import TableLayout


def wrong_call(
    call: Refused, tables: Any, layout: TableLayout, arguments: Arguments | None
) -> Callable[[], object]:
    """The call, ready to be made.

    Args:
        call: what is wrong.
        tables: of the variant.
        layout: of the tables.
        arguments: right ones, where it has a batch.
    """
    method = getattr(tables, call.method)
    if call.batch is not None:
        assert arguments is not None
        right = arguments.without_more(call.batch.more)  # or a short one might be long enough
        faulty = right.with_fault(call.what, layout, call.pick)
        return lambda: faulty.call(tables, call.method)
    if call.method in refusals.NUMBERS:
        number = _wrong_number(call, layout)
        return lambda: method(number)
    write = _wrong_write(call, tables, layout)
    if call.method == refusals.MANY:
        # Behind a right one, of another row if there is one, which must not stay staged.
        good = [[5] for _ in range(layout.num_groups)]
        other = (call.row + 1) % layout.max_num_reqs
        overwrite = write.overwrite or other == write.row
        three: list[list[Any]] = [[other, write.row], [good, write.ids], [True, overwrite]]
        if call.what == refusals.TOO_WIDE_TOGETHER:
            fits = [[3] * width for width in layout.widths]
            three = [[write.row] * 2, [fits, [[3] for _ in fits]], [True, False]]
        elif call.pick // 3 % 2 and other != write.row:  # whose row comes twice
            three = [[other, *three[0]], [good, good, write.ids], [True, *three[2]]]
            three[2][1] = layout.widths.count(1) > 0
        if call.what == refusals.LENGTHS:
            three[call.pick % 3].pop()
        return lambda: method(*three)
    return lambda: method(write.row, write.ids, write.overwrite)


def _wrong_number(call: Refused, layout: TableLayout) -> Any:
    if call.what == refusals.NUMBER_ODD:
        return (0.5, 1.0, None)[call.pick % 3]
    of_rows = call.method == refusals.DUMMY_TABLES
    limit = layout.max_num_reqs if of_rows else layout.max_num_batched_tokens
    far = call.pick % 2 * 2**31
    return limit + 1 + far if call.what == refusals.NUMBER_ABOVE else -1 - far


@dataclass
class _WrongWrite:
    row: Any
    ids: list[Any]
    overwrite: bool


def _wrong_write(call: Refused, tables: Any, layout: TableLayout) -> _WrongWrite:
    widths = np.array(layout.widths)
    many_of_one_row = call.method == refusals.MANY and layout.max_num_reqs == 1
    overwrite = call.overwrite or many_of_one_row
    room = widths if overwrite else widths - np.array(tables.num_blocks)[:, call.row]
    # All other groups get something, which must not stay staged.
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
    lists = [in_form(each, form) for each in ids]
    if call.what == refusals.ID_ODD:
        odd: tuple[Any, ...] = (3.0, 2.5, np.float64(3.0), np.float32(2.5), None)
        lists[call.group] = [odd[call.pick % len(odd)]]
        if form is Form.ARRAY:
            lists[call.group] = np.array([3.0])
        elif form is Form.TUPLE:
            lists[call.group] = tuple(lists[call.group])
    return _WrongWrite(row, lists, overwrite)
