"""An arm: one variant, set up for one workload, with the workload's steps on its device."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bt_bench.model import Operation, Reason, ReasonCode
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
    """A variant raised while it was measured."""

    def __init__(self, arm: str, error: BaseException) -> None:
        super().__init__(f"{arm}: {error}")
        self.arm = arm
        self.error = error

    def reason(self) -> Reason:
        """Why the arm's case failed."""
        return reason_of(self.error, "while measured")


def reason_of(error: BaseException, where: str) -> Reason:
    """The reason for a case in which a variant raised an exception."""
    text = (str(error).splitlines() or [""])[0]
    if isinstance(error, torch.OutOfMemoryError):
        return Reason(code=ReasonCode.OUT_OF_MEMORY, message=f"{where}: {text}")
    frames = traceback.extract_tb(error.__traceback__)
    # The frame that its author can do something about, not one inside of Triton or torch.
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    at = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    return Reason(code=ReasonCode.RAISED, message=f"{where}: {type(error).__name__}: {text}{at}")


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
        with self.guarded():
            self.tables = variant(workload.layout, device)
            for append in workload.setup:
                self.tables.append_block_ids(append.row, append.block_ids, append.overwrite)
            self.tables.apply_staged_writes()
            self._start = self.tables.snapshot()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Says which arm it was when something of the variant raises.

        Raises:
            ArmFailedError: in place of any exception.
        """
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: a variant must not end the run
            raise ArmFailedError(self.name, error) from error

    def rewind(self) -> None:
        """Puts the state before the first step back."""
        self.tables.restore(self._start)

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
