"""The inputs of a workload's steps on their device, and the calls that stage writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from bt_bench.suites.block_tables.workloads import Append, Step, Workload
from bt_kernels.interface import TableState


@dataclass(frozen=True)
class CustomOutputs:
    """A caller's buffers, which gather and slots write in place of the persistent ones.

    They serve all steps of a workload, so most steps fill only part of them.

    Args:
        block_tables: per group, int32 `[rows, width]`.
        addresses: `[G]` uint64, the addresses of the tables, on the device, where a captured graph
            needs them. `None`: the variant must find them.
        slot_mappings: int64 `[G, tokens]`.
    """

    block_tables: tuple[torch.Tensor, ...]
    addresses: torch.Tensor | None
    slot_mappings: torch.Tensor


@dataclass(frozen=True)
class StepInputs:
    """One step with its arrays on the device, where an engine has them already.

    Args:
        appends: staged before the step; `batched` holds them for `append_many`, made before
            staging is timed.
        idx_mapping: `[R]` int32 or int64.
        query_start_loc: `[R + 1]` int32.
        positions: `[T]` int64, or longer.
        num_reqs_padded: rows to read.
        num_tokens_padded: slots to read.
        num_computed_tokens: `[max_num_reqs]` int32; `None` where the engine does not pass it.
        outputs: where to write; `None`: the persistent buffers.
    """

    appends: tuple[Append, ...]
    idx_mapping: torch.Tensor
    query_start_loc: torch.Tensor
    positions: torch.Tensor
    num_reqs_padded: int
    num_tokens_padded: int
    num_computed_tokens: torch.Tensor | None = None
    outputs: CustomOutputs | None = None
    batched: BatchedAppends = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Make the lists for `append_many`."""
        object.__setattr__(self, "batched", BatchedAppends.of(self.appends))


def inputs_on(device: torch.device, workload: Workload) -> list[StepInputs]:
    """Return the steps of a workload on a device; arms of one case share them."""
    outputs = outputs_on(device, workload)
    return [step_on(device, workload, step, outputs=outputs) for step in workload.steps]


def step_on(
    device: torch.device,
    workload: Workload,
    step: Step,
    spare: int = 0,
    outputs: CustomOutputs | None = None,
) -> StepInputs:
    """Copy a step to a device: a variant that writes to its inputs then harms no other.

    Args:
        device: where the tensors go.
        workload: gives the dtype of `idx_mapping`.
        step: the step.
        spare: garbage elements after the positions, whose buffer may be longer than T.
        outputs: the result of `outputs_on`.
    """
    positions = np.concatenate([step.positions, np.arange(spare, dtype=np.int64)])
    index_dtype = getattr(torch, workload.idx_mapping_dtype)
    computed = step.num_computed_tokens
    return StepInputs(
        appends=tuple(map(copied, step.appends)),
        idx_mapping=torch.tensor(step.idx_mapping, device=device, dtype=index_dtype),
        query_start_loc=torch.tensor(step.query_start_loc, device=device),
        positions=torch.tensor(positions, device=device),
        num_reqs_padded=step.num_reqs_padded,
        num_tokens_padded=step.num_tokens_padded,
        num_computed_tokens=None if computed is None else torch.tensor(computed, device=device),
        outputs=outputs,
    )


def outputs_on(
    device: torch.device, workload: Workload, spare: int = 0, *, addressed: bool = True
) -> CustomOutputs | None:
    """Make the buffers for the custom outputs of a workload; `None` if it has none.

    Args:
        device: where they go.
        workload: the buffers have room for its largest padded step.
        spare: additional rows and slots, and slots in the gap between one group and the next.
        addressed: whether to put the addresses on the device.
    """
    if not workload.custom_outputs:
        return None
    layout = workload.layout
    rows = spare + max((step.num_reqs_padded for step in workload.steps), default=0)
    tokens = spare + max((step.num_tokens_padded for step in workload.steps), default=0)
    tables = tuple(
        torch.zeros((rows, width), dtype=torch.int32, device=device) for width in layout.widths
    )
    addresses = [table.data_ptr() for table in tables]
    slots = torch.zeros((layout.num_groups, tokens + spare), dtype=torch.int64, device=device)
    return CustomOutputs(
        tables,
        torch.tensor(addresses, dtype=torch.uint64, device=device) if addressed else None,
        slots[:, :tokens],
    )


@dataclass(frozen=True)
class BatchedAppends:
    """Appends as a scheduler holds them and `append_many` takes them: a list per argument.

    Args:
        rows: request row, one per append.
        block_ids: per append, its lists of block ids, one per group; shared with the appends.
        overwrite: one per append.
    """

    rows: list[int]
    block_ids: list[tuple[list[int], ...]]
    overwrite: list[bool]

    @classmethod
    def of(cls, appends: Sequence[Append]) -> BatchedAppends:
        """Convert appends, in order."""
        return cls(
            [append.row for append in appends],
            [append.block_ids for append in appends],
            [append.overwrite for append in appends],
        )


def copied(append: Append) -> Append:
    """Return a copy with its own lists."""
    return replace(append, block_ids=tuple(list(ids) for ids in append.block_ids))


def append_many_of(tables: Any) -> Callable[..., object] | None:
    """Return the method that stages all requests of a step in one call, or `None`."""
    append_many: Callable[..., object] | None = getattr(tables, "append_many", None)
    return append_many if callable(append_many) else None


def append_each(tables: Any, appends: Sequence[Append]) -> None:
    """Stage writes one call at a time."""
    append_block_ids = tables.append_block_ids
    for append in appends:
        append_block_ids(append.row, append.block_ids, append.overwrite)


def set_up_again(tables: Any, start: TableState, setup: Sequence[Append]) -> None:
    """Bring tables to the state after another setup, over the present contents of their rows.

    Args:
        tables: a variant's tables.
        start: snapshot of the state after their own setup.
        setup: writes to the same rows, in the same sizes.
    """
    tables.restore(start)
    written: set[int] = set()
    for append in setup:
        overwrite = append.overwrite or append.row not in written
        written.add(append.row)
        tables.append_block_ids(append.row, copied(append).block_ids, overwrite)
    tables.apply_staged_writes()


def undo_staging(tables: Any) -> Callable[[], object]:
    """Return a call that resets the block counts, as staging the same writes again requires."""
    num_blocks = tables.num_blocks
    # The quickest form of `num_blocks[...] = before`, since it runs within a timed region.
    return partial(num_blocks.__setitem__, ..., np.array(num_blocks))


def staging_call(
    tables: Any, appends: Sequence[Append], batched: BatchedAppends
) -> Callable[[], object]:
    """Return the call that stages the writes of a step, without making it.

    It calls `append_many` if the tables have it; otherwise, it loops over the requests.

    Args:
        tables: a variant's tables.
        appends: the writes to stage.
        batched: the same writes as lists, made before staging is timed.
    """
    append_many = append_many_of(tables)
    if append_many is None:
        return partial(append_each, tables, appends)
    return partial(append_many, batched.rows, batched.block_ids, batched.overwrite)
