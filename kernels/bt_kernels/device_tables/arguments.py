"""Checks that refuse arguments before any launch, if a kernel would access memory out of bounds.

They run in every call, so each is one quick expression; the details are worked out only if it
fails. Contents of device memory are checked only if the tables `validate`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import torch

from bt_kernels.layout import MAX_NUM_BATCHED_TOKENS, MAX_NUM_REQS, index_of

if TYPE_CHECKING:
    from bt_kernels.layout import TableLayout

INDEX_DTYPES = (torch.int32, torch.int64)
_ADDRESS_DTYPES = (torch.uint64, torch.int64)

# One dimension, contiguous. Vectors of at most one element may have any stride: they fail the quick
# test, but pass the thorough one that follows.
_CONTIGUOUS = (1,)


def check_mapping(
    layout: TableLayout, device: torch.device, idx_mapping: torch.Tensor, *, wide: bool = False
) -> int:
    """Check `idx_mapping`, `[R]` int32 or int64; return R.

    Args:
        layout: layout of the tables.
        device: their device.
        idx_mapping: the mapping.
        wide: whether the results go into a caller's buffers, which may have more rows than the
            tables; `check_out` compares them with the batch.
    """
    if (
        idx_mapping.stride() != _CONTIGUOUS
        or idx_mapping.dtype not in INDEX_DTYPES
        or idx_mapping.device != device
    ):
        _refuse_vector("idx_mapping", idx_mapping, INDEX_DTYPES, device)
    num_reqs = idx_mapping.numel()
    limit, name = _most_reqs(layout, wide=wide)
    if num_reqs > limit:
        raise ValueError(f"idx_mapping has {num_reqs} requests; expected at most {limit} ({name})")
    return num_reqs


def _most_reqs(layout: TableLayout, *, wide: bool) -> tuple[int, str]:
    """Return the most requests of a batch, and the name of this limit."""
    return (MAX_NUM_REQS, "the most of a launch") if wide else (layout.max_num_reqs, "max_num_reqs")


def check_rows(
    layout: TableLayout, num_reqs: int, num_reqs_padded: int, *, wide: bool = False
) -> None:
    """Check the number of rows that a caller will read; `wide` as in `check_mapping`."""
    if type(num_reqs_padded) is not int and index_of(num_reqs_padded) is None:
        raise ValueError(f"num_reqs_padded is {num_reqs_padded!r}; expected an integer")
    limit, name = _most_reqs(layout, wide=wide)
    if not num_reqs <= num_reqs_padded <= limit:
        raise ValueError(
            f"num_reqs_padded is {num_reqs_padded}; expected {num_reqs} (the batch) to "
            f"{limit} ({name})"
        )


def check_tokens(
    layout: TableLayout,
    device: torch.device,
    num_reqs: int,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    num_tokens_padded: int,
    out: torch.Tensor | None,
) -> None:
    """Check `query_start_loc` `[R + 1]` int32, `positions` `[T]` int64, and `out` for slots."""
    if (
        query_start_loc.dtype is not torch.int32
        or query_start_loc.stride() != _CONTIGUOUS
        or query_start_loc.device != device
    ):
        _refuse_vector("query_start_loc", query_start_loc, (torch.int32,), device)
    if query_start_loc.numel() <= num_reqs:
        raise ValueError(
            f"query_start_loc has {query_start_loc.numel()} elements; expected {num_reqs + 1} "
            "(one more than the batch has requests)"
        )
    if (
        positions.dtype is not torch.int64
        or positions.stride() != _CONTIGUOUS
        or positions.device != device
    ):
        _refuse_vector("positions", positions, (torch.int64,), device)
    if out is not None:
        _check_slots_out(layout, device, out)
    if type(num_tokens_padded) is not int and index_of(num_tokens_padded) is None:
        raise ValueError(f"num_tokens_padded is {num_tokens_padded!r}; expected an integer")
    limit = layout.max_num_batched_tokens if out is None else out.shape[1]
    if not 0 <= num_tokens_padded <= limit:
        name = "max_num_batched_tokens" if out is None else "columns of out"
        raise ValueError(
            f"num_tokens_padded is {num_tokens_padded}; expected 0 to {limit} ({name})"
        )


def check_size(name: str, value: int, limit: int, limit_name: str) -> None:
    """Check a number of rows or tokens."""
    if index_of(value) is None or not 0 <= value <= limit:
        raise ValueError(f"{name} is {value!r}; expected 0 to {limit} ({limit_name})")


def check_table(
    name: str,
    table: torch.Tensor,
    shape: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    """Check a table that replaces another one."""
    _check_place(name, table, (dtype,), device)
    if tuple(table.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(table.shape)}; expected {shape}")
    _check_contiguous(name, table)


Range: TypeAlias = "tuple[int, int]"
"""First and past-the-last address of a contiguous table, in bytes."""


def ranges_of(*tables: torch.Tensor) -> list[Range]:
    """Return the address ranges of contiguous tables that are not empty, in ascending order."""
    found = [(table.data_ptr(), table.data_ptr() + table.nbytes) for table in tables]
    return sorted((begin, end) for begin, end in found if end > begin)


def check_apart(out: Sequence[torch.Tensor], *others: Sequence[torch.Tensor]) -> None:
    """Check that no contiguous table of a caller overlaps another table."""
    check_outside(out, ranges_of(*(table for tables in others for table in tables)))


def check_outside(out: Sequence[torch.Tensor], taken: Sequence[Range]) -> None:
    """Check like `check_apart`, given the ranges of the other tables, which do not overlap."""
    begins = [table.data_ptr() for table in out]
    found = []
    for group, begin in enumerate(begins):
        end = begin + out[group].nbytes
        if end == begin:
            continue
        # The last table that begins before this one ends.
        before = bisect_left(taken, (end,)) - 1
        if before >= 0 and taken[before][1] > begin:
            _refuse_overlap(group)
        found.append((begin, end, group))
    if len(found) > 1:
        found.sort()
        for (_, end, before), (begin, _, after) in pairwise(found):
            if begin < end:
                _refuse_overlap(max(before, after))


def _refuse_overlap(group: int) -> NoReturn:
    raise ValueError(f"out[{group}] overlaps another table; expected a buffer of its own")


def check_computed(
    layout: TableLayout, device: torch.device, num_computed_tokens: torch.Tensor
) -> None:
    """Check `num_computed_tokens`, `[max_num_reqs]` int32."""
    if (
        num_computed_tokens.dtype is not torch.int32
        or num_computed_tokens.stride() != _CONTIGUOUS
        or num_computed_tokens.device != device
    ):
        _refuse_vector("num_computed_tokens", num_computed_tokens, (torch.int32,), device)
    if num_computed_tokens.numel() < layout.max_num_reqs:
        raise ValueError(
            f"num_computed_tokens has {num_computed_tokens.numel()} elements; expected "
            f"{layout.max_num_reqs}, one per request row (max_num_reqs)"
        )


def check_out(
    layout: TableLayout,
    device: torch.device,
    out: Sequence[torch.Tensor],
    out_ptrs: torch.Tensor | None,
    num_reqs_padded: int,
) -> None:
    """Check the tables of a caller: per group `[num_reqs_padded or more, width]` int32."""
    if len(out) != layout.num_groups:
        raise ValueError(f"out has {len(out)} tensors; expected {layout.num_groups}, one per group")
    for group, (table, width) in enumerate(zip(out, layout.widths, strict=True)):
        _check_place(f"out[{group}]", table, (torch.int32,), device)
        if table.dim() != 2 or table.shape[1] != width or table.shape[0] < num_reqs_padded:
            raise ValueError(
                f"out[{group}] has shape {tuple(table.shape)}; expected "
                f"[{num_reqs_padded} or more, {width}]"
            )
        _check_contiguous(f"out[{group}]", table)
    if out_ptrs is not None:
        if out_ptrs.dim() != 1 or out_ptrs.numel() != layout.num_groups:
            raise ValueError(
                f"out_ptrs has shape {tuple(out_ptrs.shape)}; expected [{layout.num_groups}], one "
                "address per group"
            )
        _refuse_vector("out_ptrs", out_ptrs, _ADDRESS_DTYPES, device)


def check_rows_exist(layout: TableLayout, idx_mapping: torch.Tensor) -> None:
    """Check the rows in `idx_mapping`; waits for the device."""
    for index, row in enumerate(idx_mapping.tolist()):
        if not -1 <= row < layout.max_num_reqs:
            raise ValueError(
                f"idx_mapping[{index}] is {row}; expected -1 (a dummy request) to "
                f"{layout.max_num_reqs - 1} (max_num_reqs - 1)"
            )


def check_token_ranges(
    num_reqs: int,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    num_slots: int,
    num_tokens_padded: int | None = None,
) -> None:
    """Check the contents of `query_start_loc`; waits for the device."""
    starts = query_start_loc[: num_reqs + 1].tolist()
    if starts[0] != 0:
        raise ValueError(f"query_start_loc[0] is {starts[0]}; expected 0")
    for index, (before, start) in enumerate(pairwise(starts), start=1):
        if start < before:
            raise ValueError(
                f"query_start_loc[{index}] is {start}; expected {before} (the one before) or more"
            )
    limits = [(positions.numel(), "elements of positions"), (num_slots, "slots")]
    if num_tokens_padded is not None:
        limits.append((num_tokens_padded, "num_tokens_padded"))
    for limit, name in limits:
        if starts[-1] > limit:
            raise ValueError(
                f"query_start_loc[{num_reqs}], the number of tokens, is {starts[-1]}; expected at "
                f"most {limit} ({name})"
            )


def check_addresses(out: Sequence[torch.Tensor], out_ptrs: torch.Tensor) -> None:
    """Compare `out_ptrs` with the addresses of `out`; waits for the device."""
    for group, (table, address) in enumerate(zip(out, out_ptrs.tolist(), strict=True)):
        if table.data_ptr() != address:
            raise ValueError(
                f"out_ptrs[{group}] is {address}; expected {table.data_ptr()}, the address of "
                f"out[{group}]"
            )


def _check_slots_out(layout: TableLayout, device: torch.device, out: torch.Tensor) -> None:
    _check_place("out", out, (torch.int64,), device)
    if out.dim() != 2 or out.shape[0] != layout.num_groups:
        raise ValueError(
            f"out, for slots, has shape {tuple(out.shape)}; expected [{layout.num_groups}, tokens]"
        )
    if out.shape[1] > MAX_NUM_BATCHED_TOKENS:
        raise ValueError(
            f"out, for slots, has {out.shape[1]} columns; expected {MAX_NUM_BATCHED_TOKENS} or "
            "less: pass a part of it"
        )
    rows, elements = out.stride()
    if (out.shape[1] > 1 and elements != 1) or (out.shape[0] > 1 and rows < out.shape[1]):
        raise ValueError(
            f"out, for slots, has strides {out.stride()}; expected elements of a row side by side, "
            "and rows that do not overlap"
        )


def _refuse_vector(
    name: str, tensor: torch.Tensor, dtypes: tuple[torch.dtype, ...], device: torch.device
) -> None:
    """Raise if anything is wrong with a one-dimensional argument."""
    _check_place(name, tensor, dtypes, device)
    if tensor.dim() != 1:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected one dimension")
    _check_contiguous(name, tensor)


def _check_place(
    name: str, tensor: torch.Tensor, dtypes: tuple[torch.dtype, ...], device: torch.device
) -> None:
    if tensor.dtype not in dtypes:
        expected = " or ".join(map(str, dtypes))
        raise ValueError(f"{name} has dtype {tensor.dtype}; expected {expected}")
    if tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}; expected {device}, where the tables are")


def _check_contiguous(name: str, tensor: torch.Tensor) -> None:
    if not tensor.is_contiguous():
        raise ValueError(
            f"{name} has strides {tensor.stride()}; expected a contiguous tensor: pass "
            f"{name}.contiguous()"
        )
