"""An arm: one variant, set up for one workload, with the workload's steps on its device."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bt_bench import activity
from bt_bench.model import Operation, Reason, ReasonCode
from bt_bench.raised import is_interrupt, text_of
from bt_bench.staging import BatchedAppends, append_each, copied, staging_call
from bt_bench.workloads.steps import Append, Step, Workload


@dataclass(frozen=True)
class CustomOutputs:
    """Buffers of a caller, which gather and slots write in place of the persistent ones.

    They serve all steps of a workload, so most steps fill only part of them.

    Args:
        block_tables: per group, int32 `[rows, width]`.
        addresses: `[G]` uint64, where the tables lie; on the device, as a captured graph needs it.
            `None`: the variant has to find them.
        slot_mappings: int64 `[G, tokens]`.
    """

    block_tables: tuple[torch.Tensor, ...]
    addresses: torch.Tensor | None
    slot_mappings: torch.Tensor


@dataclass(frozen=True)
class StepInputs:
    """One step with its arrays on the device, where an engine has them before the step.

    Args:
        appends: staged before the step; `batched` has the same for `append_many`, so that no list
            is made while staging is timed.
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
        """Makes the lists for `append_many`."""
        object.__setattr__(self, "batched", BatchedAppends.of(self.appends))


def inputs_on(device: torch.device, workload: Workload) -> list[StepInputs]:
    """The steps of a workload on a device; arms of one case share them."""
    outputs = outputs_on(device, workload)
    return [step_on(device, workload, step, outputs=outputs) for step in workload.steps]


def step_on(
    device: torch.device,
    workload: Workload,
    step: Step,
    spare: int = 0,
    outputs: CustomOutputs | None = None,
) -> StepInputs:
    """One step on a device: copies, so that a variant that writes to them harms nobody else.

    Args:
        device: where the tensors go.
        workload: for the dtype of `idx_mapping`.
        step: the step.
        spare: elements of garbage after the positions, which may be longer than T.
        outputs: of `outputs_on`.
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
    """Buffers for the custom outputs of a workload; `None` where it has none.

    Args:
        device: where they go.
        workload: its largest padded step is what they have room for.
        spare: rows and slots that they are longer than that.
        addressed: whether the addresses lie on the device.
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
    return CustomOutputs(
        tables,
        torch.tensor(addresses, dtype=torch.uint64, device=device) if addressed else None,
        torch.zeros((layout.num_groups, tokens), dtype=torch.int64, device=device),
    )


def lacking(variant: type[Any], workload: Workload) -> Reason | None:
    """Why a variant is not run on a workload: features that it lacks; `None` where it is run."""
    missing = workload.features - getattr(variant, "features", frozenset())
    if not missing:
        return None
    return Reason(code=ReasonCode.UNSUPPORTED, message=f"lacks {', '.join(sorted(missing))}")


def stage(tables: Any, step: StepInputs) -> None:
    """Stages the writes of a step."""
    staging_call(tables, step.appends, step.batched)()


GATHERS = ("gather_block_tables", "gather_and_compute_slot_mappings")
"""Methods that fill input rows and may be captured."""


def bind(tables: Any, operation: Operation, step: StepInputs) -> Callable[[], object]:
    """The call that performs an operation on a step, ready to be made.

    Only a step that needs an optional argument passes it: variants without the feature lack it.
    """
    reqs, tokens = step.num_reqs_padded, step.num_tokens_padded
    batch = step.idx_mapping, step.query_start_loc, step.positions
    rows, slots = _gather_options(step), _slots_out(step)
    match operation:
        case Operation.STAGE:
            return staging_call(tables, step.appends, step.batched)
        case Operation.APPLY:
            return partial(tables.apply_staged_writes)
        case Operation.GATHER:
            return partial(tables.gather_block_tables, step.idx_mapping, reqs, **rows)
        case Operation.SLOTS:
            out = {"out": slots["slots_out"]} if slots else {}
            return partial(tables.compute_slot_mappings, *batch, tokens, **out)
        case Operation.GATHER_SLOTS:
            both = tables.gather_and_compute_slot_mappings
            return partial(both, *batch, reqs, tokens, **rows, **slots)
        case Operation.STEP:
            return partial(tables.prepare_step, *batch, reqs, tokens, **rows, **slots)


def note_replay(call: Callable[[], object]) -> None:
    """Tells tables that a call of theirs was replayed: rows that a graph fills they cannot see.

    Args:
        call: from `bind`. Tables that take a capture for a call need not be told, and are not.
    """
    if not isinstance(call, partial) or "out" in call.keywords:
        return
    tables = getattr(call.func, "__self__", None)
    if tables is not None and getattr(call.func, "__name__", "") in GATHERS:
        tables.num_dirty_rows = call.args[0].shape[0]


def _gather_options(step: StepInputs) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if step.num_computed_tokens is not None:
        options["num_computed_tokens"] = step.num_computed_tokens
    if step.outputs is not None:
        options["out"] = step.outputs.block_tables
        if step.outputs.addresses is not None:
            options["out_ptrs"] = step.outputs.addresses
    return options


def _slots_out(step: StepInputs) -> dict[str, Any]:
    return {} if step.outputs is None else {"slots_out": step.outputs.slot_mappings}


class ArmFailedError(Exception):
    """A variant raised, and the others cannot go on beside it.

    Args:
        arm: the variant's name.
        error: what it raised.
        where: what was being done.
    """

    def __init__(self, arm: str, error: BaseException, where: str = "while measured") -> None:
        super().__init__(f"{arm}: {text_of(error)}")
        self.arm = arm
        self.error = error
        self.where = where

    def reason(self) -> Reason:
        """Why the arm's case failed."""
        return reason_of(self.error, self.where)


def reason_of(error: BaseException, where: str, device_fault: str | None = None) -> Reason:
    """The reason for a case in which a variant raised an exception.

    Args:
        error: the exception.
        where: what was being done.
        device_fault: what the device says since, where it can do nothing more.
    """
    frames = traceback.extract_tb(error.__traceback__)
    # The frame that its author can do something about, not one inside of Triton or torch.
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    at = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    text = _first_line(error)
    if device_fault is not None:
        return Reason(code=ReasonCode.CRASHED, message=f"{where}: {device_fault}{at}")
    if is_out_of_memory(error):
        what = text or type(error).__name__
        return Reason(code=ReasonCode.OUT_OF_MEMORY, message=f"{where}: {what}{at}")
    return Reason(code=ReasonCode.RAISED, message=f"{where}: {type(error).__name__}: {text}{at}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception, or one that it was raised from, says that memory ran out."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (MemoryError, torch.OutOfMemoryError)):
            return True
        # Neither the driver nor torch's allocator on the CPU has an exception of its own for it.
        if isinstance(cause, RuntimeError) and re.search(
            "out of memory|can't allocate memory", _first_line(cause)
        ):
            return True
        cause = cause.__cause__
    return False


def is_fatal(error: BaseException, device: torch.device) -> bool:
    """Whether nothing more should be run in a process after an exception."""
    return is_out_of_memory(error) or device_fault(device) is not None


def synchronize(device: torch.device) -> None:
    """Waits until a device is idle, so that what went wrong on it is raised here."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_fault(device: torch.device) -> str | None:
    """What keeps a device from ever doing anything again in this process, or `None`.

    An illegal address ends a CUDA context: every call after it fails with the same error.
    """
    try:
        synchronize(device)
    except RuntimeError as error:
        return _first_line(error)
    return None


def _first_line(error: BaseException) -> str:
    return (text_of(error).splitlines() or [""])[0]


class Arm:
    """A variant in the state before the first step of a workload.

    Args:
        name: the variant's name.
        variant: its class.
        workload: sizes and setup.
        device: where the tables live.
    """

    def __init__(
        self, name: str, variant: type[Any], workload: Workload, device: torch.device
    ) -> None:
        self.name = name
        self._device = device
        with self.guarded():
            self.tables = variant(workload.layout, device)
            append_each(self.tables, workload.setup)
            self.tables.apply_staged_writes()
            self._start = self.tables.snapshot()
            synchronize(device)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Says which arm it was when something of the variant raises, or ends the process.

        What is still under way on the device when the block ends may fail in the block of another
        arm: unless the block ends with an idle device, `synchronize` in it.

        Raises:
            ArmFailedError: in place of any exception.
        """
        before = activity.current().enter(self.name)
        try:
            yield
        except BaseException as error:  # SystemExit too: a variant must not end the run
            if is_interrupt(error):
                raise
            raise ArmFailedError(self.name, error) from error
        finally:
            activity.current().leave(before)

    def rewind(self) -> None:
        """Puts the state before the first step back, and waits until the device has done so."""
        self.tables.restore(self._start)
        synchronize(self._device)

    def stage(self, step: StepInputs) -> None:
        """Stages the writes of a step."""
        stage(self.tables, step)

    def prepare(self, operation: Operation) -> None:
        """Runs what precedes a timed operation within its step, other than staging."""
        if operation in (Operation.GATHER, Operation.SLOTS, Operation.GATHER_SLOTS):
            self.tables.apply_staged_writes()

    def bind(self, operation: Operation, step: StepInputs) -> Callable[[], object]:
        """The call that performs an operation on a step, ready to be made."""
        return bind(self.tables, operation, step)
