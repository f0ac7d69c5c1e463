"""Exact comparison of a variant's buffers and results with the reference's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from bt_bench.protocol import MismatchError
from bt_bench.suites.block_tables import operations
from bt_bench.suites.block_tables.inputs import BatchedAppends, CustomOutputs, StepInputs
from bt_bench.suites.block_tables.workloads import Step
from bt_bench.worker.checking.comparing import compare_exactly, compare_view, kind_of

COMPARED = ["block_tables", "input_block_tables", "slot_mappings", "num_blocks", "inputs"]
"""Names, as in reports, of everything that a passed check has compared."""

CUSTOM_OUTPUTS = "custom_outputs"
"""Name added to `COMPARED` if the workload has custom outputs."""

Buffers = dict[str, torch.Tensor]

SPOILED = -7  # no block id that a check stages


def tensors_of(tables: Any) -> Buffers:
    """Return the tensors that calls write, by name, of a variant or the reference."""
    named = {"slot_mappings": tables.slot_mappings}
    for group, table in enumerate(tables.block_tables):
        named[f"block_tables[{group}]"] = table
    for group, table in enumerate(tables.input_block_tables):
        named[f"input_block_tables[{group}]"] = table
    return named


def buffers_of(
    tables: Any, outputs: CustomOutputs | None = None, tensors: Buffers | None = None
) -> Buffers:
    """Return all buffers of a variant or the reference by name, including the caller's.

    Args:
        tables: a variant's or the reference's.
        outputs: the buffers passed by the caller.
        tensors: the result of `tensors_of` from before the call that wrote them: a variant cannot
            put off work until its tensors are looked up. `None`: look them up in `tables` now.
    """
    named = dict(tensors or tensors_of(tables))
    named["num_blocks"] = torch.from_numpy(np.array(tables.num_blocks, dtype=np.int64))
    if outputs is not None:
        named["slots_out"] = outputs.slot_mappings
        for group, table in enumerate(outputs.block_tables):
            named[f"out[{group}]"] = table
    return named


def copies_on(device: torch.device, buffers: Buffers) -> Buffers:
    """Return copies of buffers on a device."""
    return {name: buffer.to(device, copy=True) for name, buffer in buffers.items()}


def addresses_of(tables: Any) -> dict[str, int]:
    """Return the addresses of the outputs, which a captured CUDA graph would hold."""
    return {name: buffer.data_ptr() for name, buffer in tensors_of(tables).items()}


def poison(tables: Any, value: int, outputs: CustomOutputs | None = None) -> None:
    """Fill all outputs with a value, to expose elements left unwritten."""
    filled = [*tables.input_block_tables, tables.slot_mappings]
    if outputs is not None:
        filled += [*outputs.block_tables, outputs.slot_mappings]
    for tensor in filled:
        tensor.fill_(value)


def fill_tables(tables: Any, garbage: Sequence[int]) -> None:
    """Fill the source tables with garbage, in place of what no row owns.

    Args:
        tables: a variant's or the reference's.
        garbage: per group, a number that determines it.
    """
    state = tables.snapshot()
    for table, first in zip(state.block_tables, garbage, strict=True):
        # A ramp, so that neighbouring columns and rows differ.
        ramp = torch.arange(table.numel(), dtype=torch.int64, device=table.device)
        table.copy_(((ramp * 7919 + first) % 2**31).reshape(table.shape))
    tables.restore(state)


def compare_buffers(
    expected: Buffers,
    tables: Any,
    poison_value: int | None = None,
    outputs: CustomOutputs | None = None,
    tensors: Buffers | None = None,
) -> None:
    """Compare every element of every buffer; see `buffers_of`.

    Raises:
        MismatchError: naming the first buffer that differs, and its first element.
    """
    actual = buffers_of(tables, outputs, tensors)
    for name, wanted in expected.items():
        compare_exactly(name, actual.get(name), wanted, poison_value)


def compare_addresses(before: dict[str, int], tables: Any) -> None:
    """Check that the outputs have kept their addresses."""
    for name, address in addresses_of(tables).items():
        if address != before.get(name):
            raise MismatchError(f"{name} has moved; expected it to keep its address")


def compare_results(results: Sequence[tuple[str, Any]], tables: Any, step: StepInputs) -> None:
    """Check that operations returned views of the buffers they wrote, in padded sizes."""
    for operation, result in results:
        if operation in (operations.STAGE, operations.APPLY):
            continue
        views = slots = result
        if operation not in (operations.GATHER, operations.SLOTS):
            if not isinstance(result, tuple) or len(result) != 2:
                raise MismatchError(
                    f"{operation} returned {kind_of(result)}; expected block tables and slots"
                )
            views, slots = result
        if operation != operations.SLOTS:
            _compare_table_views(operation, views, _tables_written(tables, step))
        if operation != operations.GATHER:
            compare_view(f"{operation}'s slot mappings", slots, _slots_written(tables, step))


def compare_dummies(views: Any, slots: Any, tables: Any, num_reqs: int, num_tokens: int) -> None:
    """Check that the methods for dummy outputs returned views of the persistent buffers."""
    written = [table[:num_reqs] for table in tables.input_block_tables]
    _compare_table_views("get_dummy_block_tables", views, written)
    wanted = tables.slot_mappings[:, :num_tokens]
    compare_view("get_dummy_slot_mappings' result", slots, wanted)


def compare_inputs(given: Step, step: StepInputs) -> None:
    """Check that the inputs of a step were not changed."""
    for name in ("idx_mapping", "query_start_loc", "positions", "num_computed_tokens"):
        tensor, wanted = getattr(step, name), getattr(given, name)
        if tensor is not None and not np.array_equal(tensor[: len(wanted)].cpu().numpy(), wanted):
            raise MismatchError(f"the argument {name} was changed; expected it to be only read")
    outputs = step.outputs
    if outputs is None or outputs.addresses is None:
        return
    if outputs.addresses.tolist() != [table.data_ptr() for table in outputs.block_tables]:
        raise MismatchError("the argument out_ptrs was changed; expected it to be only read")


def compare_appends(given: Step, step: StepInputs) -> None:
    """Check that the staged lists were not changed."""
    for append, wanted in zip(step.appends, given.appends, strict=True):
        if append.block_ids != wanted.block_ids:
            raise MismatchError(
                f"new_block_ids of row {append.row} were changed; expected them to be only read"
            )
    # `batched` shares its lists of block ids with the appends, which were just compared.
    if step.batched != BatchedAppends.of(step.appends):
        raise MismatchError("a list of append_many was changed; expected it to be only read")


@contextmanager
def spoiled_appends(step: StepInputs) -> Iterator[None]:
    """Overwrite the staged lists within the context, as an engine that reuses them may."""
    lists = [ids for append in step.appends for ids in append.block_ids]
    before = [list(ids) for ids in lists]
    for ids in lists:
        ids[:] = [SPOILED] * len(ids)
    try:
        yield
    finally:
        for ids, saved in zip(lists, before, strict=True):
            ids[:] = saved


def _tables_written(tables: Any, step: StepInputs) -> list[torch.Tensor]:
    """Return the views that a gather must return."""
    written = tables.input_block_tables if step.outputs is None else step.outputs.block_tables
    return [table[: step.num_reqs_padded] for table in written]


def _slots_written(tables: Any, step: StepInputs) -> torch.Tensor:
    """Return the view of the slots that an operation must return."""
    written = tables.slot_mappings if step.outputs is None else step.outputs.slot_mappings
    return written[:, : step.num_tokens_padded]


def _compare_table_views(method: str, views: Any, wanted: Sequence[torch.Tensor]) -> None:
    if not isinstance(views, (tuple, list)) or len(views) != len(wanted):
        raise MismatchError(
            f"{method} returned {kind_of(views)}; expected {len(wanted)} block tables"
        )
    for group, (view, whole) in enumerate(zip(views, wanted, strict=True)):
        compare_view(f"{method}'s block table of group {group}", view, whole)
