"""Calls that perform the suite's operations on a variant's tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bt_bench.protocol import Operation
from bt_bench.suites.block_tables import operations
from bt_bench.suites.block_tables.inputs import StepInputs, staging_call


def stage(tables: Any, step: StepInputs) -> None:
    """Stage the writes of a step."""
    staging_call(tables, step.appends, step.batched)()


def bind(tables: Any, operation: Operation, step: StepInputs) -> Callable[[], object]:
    """Return the call that performs an operation on a step, without making it.

    Optional arguments are passed only if the step needs them: variants without the feature lack
    them.
    """
    reqs, tokens = step.num_reqs_padded, step.num_tokens_padded
    batch = step.idx_mapping, step.query_start_loc, step.positions
    rows, slots = _gather_options(step), _slots_out(step)
    match operation:
        case operations.STAGE:
            return staging_call(tables, step.appends, step.batched)
        case operations.APPLY:
            return partial(tables.apply_staged_writes)
        case operations.GATHER:
            return partial(tables.gather_block_tables, step.idx_mapping, reqs, **rows)
        case operations.SLOTS:
            out = {"out": slots["slots_out"]} if slots else {}
            return partial(tables.compute_slot_mappings, *batch, tokens, **out)
        case operations.GATHER_SLOTS:
            both = tables.gather_and_compute_slot_mappings
            return partial(both, *batch, reqs, tokens, **rows, **slots)
        case operations.STEP:
            return partial(tables.prepare_step, *batch, reqs, tokens, **rows, **slots)
    raise ValueError(f"operation {operation!r}; expected one of {', '.join(operations.BY_NAME)}")


def _gather_options(step: StepInputs) -> dict[str, Any]:
    options: dict[str, Any] = {"num_computed_tokens": step.num_computed_tokens}
    if step.outputs is not None:
        options |= {"out": step.outputs.block_tables, "out_ptrs": step.outputs.addresses}
    return {name: value for name, value in options.items() if value is not None}


def _slots_out(step: StepInputs) -> dict[str, Any]:
    return {} if step.outputs is None else {"slots_out": step.outputs.slot_mappings}
