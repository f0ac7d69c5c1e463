"""The driver of block-table variants: their set-up, calls, and state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from bt_bench.protocol import Driver, Operation
from bt_bench.suites.block_tables import operations
from bt_bench.suites.block_tables.calls import bind
from bt_bench.suites.block_tables.checking.differences import tamed, undefined_on
from bt_bench.suites.block_tables.checking.trial import TableTrial, relabel
from bt_bench.suites.block_tables.inputs import (
    StepInputs,
    append_each,
    copied,
    inputs_on,
    set_up_again,
    undo_staging,
)
from bt_bench.suites.block_tables.vllm.differences import differences_of
from bt_bench.suites.block_tables.workloads import Workload
from bt_kernels.interface import TableState

GATHERS = ("gather_block_tables", "gather_and_compute_slot_mappings")
"""Methods that fill input rows and may be captured."""

_APPLY_FIRST = (operations.GATHER, operations.SLOTS, operations.GATHER_SLOTS)


class TableDriver(Driver):
    """A variant's block tables, filled by the setup of a workload.

    Args:
        variant: class of the variant.
        workload: sizes and setup.
        device: where the tables live.
        start: a snapshot from after the setup, restored instead of staging the setup again.
    """

    trial = TableTrial

    def __init__(
        self,
        variant: type[Any],
        workload: Workload,
        device: torch.device,
        start: TableState | None = None,
    ) -> None:
        self.variant = self.tables = variant(workload.layout, device)
        if start is None:
            append_each(self.tables, workload.setup)
            self.tables.apply_staged_writes()
            start = self.tables.snapshot()
        else:
            self.tables.restore(start)
        self._start = start

    @classmethod
    def like(
        cls, first: TableDriver, variant: type[Any], workload: Workload, device: torch.device
    ) -> TableDriver:
        """See the base class.

        Restoring the first instance's snapshot avoids staging all owned blocks, which takes pinned
        memory: 12 processes that staged them for every instance spent a third of their set-up time
        waiting for the GPU's driver.
        """
        return cls(variant, workload, device, first._start)

    @classmethod
    def inputs_on(cls, device: torch.device, workload: Workload) -> list[StepInputs]:
        """See the base class."""
        return inputs_on(device, workload)

    def call(self, operation: Operation, step: StepInputs) -> Callable[[], object]:
        """See the base class."""
        return bind(self.tables, operation, step)

    def rewind(self) -> None:
        """See the base class."""
        self.tables.restore(self._start)

    def prepare(self, operation: Operation, step: StepInputs) -> None:
        """Apply staged writes before an operation that reads the tables without applying them."""
        if operation in _APPLY_FIRST:
            self.tables.apply_staged_writes()

    def finish(self, operation: Operation) -> None:
        """Apply the writes that `stage` left, before the next step."""
        if operation == operations.STAGE:
            self.tables.apply_staged_writes()

    def may_be_empty(self, operation: Operation, step: StepInputs) -> bool:
        """See the base class: only an apply of nothing."""
        staged = any(any(map(len, append.block_ids)) for append in step.appends)
        return operation == operations.APPLY and not staged

    def undo(self) -> Callable[[], object]:
        """See the base class."""
        return undo_staging(self.tables)

    @classmethod
    def with_other_contents(cls, workload: Workload, rng: np.random.Generator) -> Workload:
        """See the base class: other block ids make all results differ."""
        return relabel(workload, rng)

    def take(self, workload: Workload, steps: Sequence[StepInputs]) -> Sequence[StepInputs]:
        """See the base class."""
        set_up_again(self.tables, self._start, workload.setup)
        return _other_steps(workload, steps)

    def take_like(
        self, first: TableDriver, workload: Workload, steps: Sequence[StepInputs]
    ) -> Sequence[StepInputs]:
        """See the base class: staging all owned blocks takes far longer than copying tables."""
        self.tables.restore(first.tables.snapshot())
        return _other_steps(workload, steps)

    def replayed(self, call: Callable[[], object]) -> None:
        """Set `num_dirty_rows` after the replay of a gather: tables do not see which rows it fills.

        Tables that count a capture as a call need no such correction, and get none.
        """
        if not isinstance(call, partial) or "out" in call.keywords:
            return
        # The function may be one of C, which belongs to the tables but is no method of theirs.
        if getattr(call.func, "__name__", "") in GATHERS:
            self.tables.num_dirty_rows = call.args[0].shape[0]

    @classmethod
    def undefined_on(cls, variant: type[Any], workload: Workload) -> str | None:
        """See the base class."""
        return undefined_on(variant, workload)

    @classmethod
    def tamed(cls, workload: Workload, variant: type[Any]) -> Workload:
        """See the base class."""
        return tamed(workload, differences_of(variant))

    @classmethod
    def differences_of(cls, variant: type[Any]) -> list[str]:
        """See the base class."""
        return sorted(differences_of(variant))


def _other_steps(workload: Workload, steps: Sequence[StepInputs]) -> Sequence[StepInputs]:
    return [
        replace(inputs, appends=tuple(map(copied, step.appends)))
        for inputs, step in zip(steps, workload.steps, strict=True)
    ]
