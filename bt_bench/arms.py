"""An arm: one variant, set up for one workload, with the workload's steps on its device."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bt_bench import activity
from bt_bench.model import Operation, Reason, ReasonCode
from bt_bench.raised import is_interrupt, text_of
from bt_bench.workloads.steps import Append, Step, Workload


@dataclass(frozen=True)
class StepInputs:
    """One step with its arrays on the device, where an engine has them before the step.

    Args:
        appends: staged before the step.
        tensors: `idx_mapping`, `query_start_loc`, `positions`, as the operations take them.
        num_reqs_padded: rows to read.
        num_tokens_padded: slots to read.
    """

    appends: tuple[Append, ...]
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    num_reqs_padded: int
    num_tokens_padded: int


def inputs_on(device: torch.device, workload: Workload) -> list[StepInputs]:
    """The steps of a workload on a device; arms of one case share them."""
    return [step_on(device, workload, step) for step in workload.steps]


def step_on(device: torch.device, workload: Workload, step: Step, spare: int = 0) -> StepInputs:
    """One step on a device: copies, so that a variant that writes to them harms nobody else.

    Args:
        device: where the tensors go.
        workload: for the dtype of `idx_mapping`.
        step: the step.
        spare: elements of garbage after the positions, which may be longer than T.
    """
    positions = np.concatenate([step.positions, np.arange(spare, dtype=np.int64)])
    index_dtype = getattr(torch, workload.idx_mapping_dtype)
    tensors = (
        torch.tensor(step.idx_mapping, device=device, dtype=index_dtype),
        torch.tensor(step.query_start_loc, device=device),
        torch.tensor(positions, device=device),
    )
    appends = tuple(
        replace(append, block_ids=tuple(list(ids) for ids in append.block_ids))
        for append in step.appends
    )
    return StepInputs(appends, tensors, step.num_reqs_padded, step.num_tokens_padded)


def stage(tables: Any, step: StepInputs) -> None:
    """Stages the writes of a step."""
    append_block_ids = tables.append_block_ids
    for append in step.appends:
        append_block_ids(append.row, append.block_ids, append.overwrite)


def bind(tables: Any, operation: Operation, step: StepInputs) -> Callable[[], object]:
    """The call that performs an operation on a step, ready to be made."""
    reqs, tokens = step.num_reqs_padded, step.num_tokens_padded
    idx_mapping = step.tensors[0]
    match operation:
        case Operation.STAGE:
            return partial(stage, tables, step)
        case Operation.APPLY:
            return partial(tables.apply_staged_writes)
        case Operation.GATHER:
            return partial(tables.gather_block_tables, idx_mapping, reqs)
        case Operation.SLOTS:
            return partial(tables.compute_slot_mappings, *step.tensors, tokens)
        case Operation.GATHER_SLOTS:
            return partial(tables.gather_and_compute_slot_mappings, *step.tensors, reqs, tokens)
        case Operation.STEP:
            return partial(tables.prepare_step, *step.tensors, reqs, tokens)


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
            for append in workload.setup:
                self.tables.append_block_ids(append.row, append.block_ids, append.overwrite)
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
