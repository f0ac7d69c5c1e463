"""The refusals of `append`: rows, columns and block ids outside of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from bt_kernels.layout import INT32_MAX, INT32_MIN, TableLayout, index_of


def checked_row(layout: TableLayout, req_index: int) -> int:
    """Return a request row as an integer.

    Raises:
        ValueError: when it is not an integer, or the row does not exist.
    """
    row = index_of(req_index)
    if row is None or not 0 <= row < layout.max_num_reqs:
        raise ValueError(
            f"req_index is {req_index}; expected 0 to {layout.max_num_reqs - 1} (max_num_reqs - 1)"
        )
    return row


def refuse_append(
    layout: TableLayout,
    num_blocks: npt.NDArray[np.int32],
    row: int,
    block_ids: Sequence[Sequence[int]],
    overwrite: bool,
) -> NoReturn:
    """Raise an error that explains why a call of `append` was refused.

    Args:
        layout: layout of the tables.
        num_blocks: `[G, max_num_reqs]`, unchanged since the call.
        row: as it was given, like the rest.
        block_ids: see `StagedWrites.append`.
        overwrite: likewise.

    Raises:
        ValueError: names the fault.
        RuntimeError: when there is none.
    """
    _refuse(layout, num_blocks.copy(), row, block_ids, overwrite)
    raise RuntimeError(f"append refused row {row}, but nothing is wrong; this is a bug")


def refuse_append_many(
    layout: TableLayout,
    num_blocks: npt.NDArray[np.int32],
    rows: Sequence[int],
    block_ids: Sequence[Sequence[Sequence[int]]],
    overwrite: Sequence[bool],
) -> NoReturn:
    """Raise an error that explains why a call of `append_many` was refused; see `refuse_append`.

    Raises:
        ValueError: names the fault and the request, counted from 0.
        RuntimeError: when there is none.
    """
    sizes = [_len(argument) for argument in (rows, block_ids, overwrite)]
    if None in sizes or len(set(sizes)) != 1:
        first, second, third = ("no" if size is None else size for size in sizes)
        raise ValueError(
            f"req_indices, new_block_ids and overwrite have {first}, {second} and {third} entries; "
            "expected one of each per request"
        )
    num_blocks = num_blocks.copy()
    for request, arguments in enumerate(zip(rows, block_ids, overwrite, strict=True)):
        try:
            _refuse(layout, num_blocks, *arguments)
        except ValueError as error:
            raise ValueError(f"request {request}: {error}") from None
    raise RuntimeError(f"append_many refused rows {rows}, but nothing is wrong; this is a bug")


def _refuse(
    layout: TableLayout,
    num_blocks: npt.NDArray[np.int32],
    req_index: int,
    new_block_ids: Sequence[Sequence[int]],
    overwrite: bool,
) -> None:
    """Raise for the first fault of a request, if any; else count its blocks."""
    row = checked_row(layout, req_index)
    size = _len(new_block_ids)
    if size != layout.num_groups:
        raise ValueError(
            f"new_block_ids has {'no' if size is None else size} lists; expected "
            f"{layout.num_groups}, one per group"
        )
    for group, ids in enumerate(new_block_ids):
        refuse_ids(group, ids)
        end = len(ids) + (0 if overwrite else num_blocks.item(group, row))
        if end > layout.widths[group]:
            raise ValueError(
                f"row {row} of group {group} would have {end} blocks; its table is "
                f"{layout.widths[group]} columns wide"
            )
        num_blocks[group, row] = end


def refuse_ids(group: int, ids: Sequence[int]) -> None:
    """Raise for the first id of a group that is not an integer or does not fit int32, if any."""
    if _len(ids) is None:
        raise ValueError(f"new_block_ids[{group}] is {ids!r}; expected a list of integers")
    for place, value in enumerate(ids):
        number = index_of(value)
        if number is None or not INT32_MIN <= number <= INT32_MAX:
            raise ValueError(
                f"new_block_ids[{group}][{place}] is {value!r}; expected an integer from "
                f"{INT32_MIN} to {INT32_MAX} (int32)"
            )


def _len(value: Any) -> int | None:
    """Return the length of a value, or `None` if it has none."""
    try:
        return len(value)
    except TypeError:
        return None
