"""Checks of opponents, whose results may differ from ours or be undefined where ours are not.

An opponent's inputs are kept within its definitions, or it is not run. Where it defines a result
differently, it must return exactly that result. This applies only to classes loaded as
opponents; all other variants have no differences, whatever they derive from.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bt_bench.suites.block_tables.checking.buffers import Buffers
from bt_bench.suites.block_tables.inputs import StepInputs
from bt_bench.suites.block_tables.vllm.differences import (
    INT32_RANKS,
    INT32_SLOTS,
    MEANINGS,
    ONE_LENGTH,
    POSITIONS_OUTSIDE,
    ROWS_KEPT,
    SLOTS_KEPT,
    WRITES_TO_A_ROW,
    differences_of,
)
from bt_bench.suites.block_tables.workloads import Append, Workload
from bt_kernels.layout import INT32_MAX, TableLayout

Differences = frozenset[str]

_WRAPS_AT = 2**32


def undefined_on(variant: type[Any], workload: Workload) -> str | None:
    """Return why an opponent's results on a workload are undefined; `None` if it can run it."""
    differences = differences_of(variant)
    found = []
    if WRITES_TO_A_ROW in differences and _merged(workload) is not workload:
        found.append(WRITES_TO_A_ROW)
    if POSITIONS_OUTSIDE in differences and _kept_inside(workload) is not workload:
        found.append(POSITIONS_OUTSIDE)
    if INT32_RANKS in differences and max(workload.layout.tokens_per_block) > INT32_MAX:
        found.append(INT32_RANKS)
    if ONE_LENGTH in differences and not _has_one_length(workload.layout):
        found.append(ONE_LENGTH)
    if not found:
        return None
    message = "; ".join(f"{name}: {MEANINGS[name]}" for name in found)
    return f"{message} (docs/vllm.md)"


def tamed(workload: Workload, differences: Differences) -> Workload:
    """Return a workload like the given one, without anything that some opponent leaves undefined.

    Several writes to a row in a step become one equivalent write, and positions are moved inside
    every row. A workload that needs neither is returned unchanged.
    """
    if WRITES_TO_A_ROW in differences:
        workload = _merged(workload)
    if POSITIONS_OUTSIDE in differences:
        workload = _kept_inside(workload)
    return workload


def as_defined(
    differences: Differences,
    tables: Any,
    expected: Buffers,
    poison_value: int,
    num_reqs: int,
    written: slice = slice(0, 0),
) -> Buffers:
    """Return the contents required of a variant's buffers: the reference's, adapted to an opponent.

    Args:
        differences: the variant's differences.
        tables: the variant's tables.
        expected: the reference's buffers.
        poison_value: the value of all outputs before the step.
        num_reqs: R.
        written: slots from the last token to the length of `positions`.
    """
    if not differences:
        return expected
    defined = dict(expected)
    for name, buffer in expected.items():
        if INT32_SLOTS in differences and name in ("slot_mappings", "slots_out"):
            defined[name] = _wrapped(buffer, tables.layout)
        if ROWS_KEPT in differences and name.startswith("input_block_tables"):
            defined[name] = buffer.clone()
            defined[name][num_reqs:] = poison_value
    if SLOTS_KEPT in differences:
        defined["slot_mappings"] = defined["slot_mappings"].clone()
        defined["slot_mappings"][:, written] = poison_value
    return defined


def as_returned(differences: Differences, step: StepInputs) -> StepInputs:
    """Return the step with the sizes of the views that an opponent returns."""
    if ROWS_KEPT in differences:
        step = replace(step, num_reqs_padded=len(step.idx_mapping))
    if SLOTS_KEPT in differences:
        step = replace(step, num_tokens_padded=len(step.positions))
    return step


def _wrapped(slots: Any, layout: TableLayout) -> Any:
    """Return `[G, T]` slots, with block id times block size wrapped to int32."""
    sizes = slots.new_tensor(layout.block_sizes).unsqueeze(1)
    offsets = slots % sizes
    products = (slots - offsets + _WRAPS_AT // 2) % _WRAPS_AT - _WRAPS_AT // 2
    return (products + offsets).where(slots >= 0, slots)


def _merged(workload: Workload) -> Workload:
    """Return the workload with at most one write to a row in a step."""
    before = [workload.setup, *(step.appends for step in workload.steps)]
    setup, *merged = map(_merge, before)
    if list(map(len, before)) == list(map(len, [setup, *merged])):
        return workload
    both = zip(workload.steps, merged, strict=True)
    steps = tuple(replace(step, appends=appends) for step, appends in both)
    return replace(workload, setup=setup, steps=steps)


def _merge(appends: tuple[Append, ...]) -> tuple[Append, ...]:
    rows: dict[int, Append] = {}
    for append in appends:
        earlier = rows.get(append.row)
        if earlier is not None and not append.overwrite:
            pairs = zip(earlier.block_ids, append.block_ids, strict=True)
            append = replace(earlier, block_ids=tuple([*first, *then] for first, then in pairs))
        rows[append.row] = append
    return tuple(rows.values())


def _kept_inside(workload: Workload) -> Workload:
    """Return the workload with all positions inside the rows of all groups that have slots."""
    layout = workload.layout
    groups = zip(layout.widths, layout.tokens_per_block, layout.slot_mapping_enabled, strict=True)
    lengths = [width * tokens for width, tokens, enabled in groups if enabled]
    if not lengths:
        return workload
    length = min(lengths)
    if all(((s.positions >= 0) & (s.positions < length)).all() for s in workload.steps):
        return workload
    steps = [replace(step, positions=np.mod(step.positions, length)) for step in workload.steps]
    return replace(workload, steps=tuple(steps))


def _has_one_length(layout: TableLayout) -> bool:
    """Return whether a single length, in tokens, gives every row its width."""
    sizes = list(zip(layout.widths, layout.block_sizes, strict=True))
    longest = min(width * size for width, size in sizes)
    return all((width - 1) * size < longest for width, size in sizes)
