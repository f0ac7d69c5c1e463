"""How variants of block tables are driven: what each operation calls, with which arguments."""

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
from bt_bench.suites.block_tables.checking.differences import (
    differences_of,
    tamed,
    undefined_on,
)
from bt_bench.suites.block_tables.checking.trial import TableTrial, relabel
from bt_bench.suites.block_tables.inputs import StepInputs, append_each, copied, inputs_on
from bt_bench.suites.block_tables.workloads import Workload
from bt_kernels.interface import TableState

GATHERS = ("gather_block_tables", "gather_and_compute_slot_mappings")
"""Methods that fill input rows and may be captured."""

_APPLY_FIRST = (operations.GATHER, operations.SLOTS, operations.GATHER_SLOTS)


class TableDriver(Driver):
    """Block tables of a variant, with what the setup of a workload wrote into them.

    Args:
        variant: its class.
        workload: sizes and setup.
        device: where the tables live.
        start: a snapshot from after the setup, in place of staging it again.
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

        Staging all that requests own takes pinned memory, and 12 processes that did so for each of
        their instances waited for the driver a third of the time that they took to set up.
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
        """What was staged has to be applied before what reads the tables by a call of its own."""
        if operation in _APPLY_FIRST:
            self.tables.apply_staged_writes()

    def finish(self, operation: Operation) -> None:
        """What was staged has to be applied before the next step."""
        if operation == operations.STAGE:
            self.tables.apply_staged_writes()

    def may_be_empty(self, operation: Operation, step: StepInputs) -> bool:
        """See the base class: only where there is nothing to apply."""
        staged = any(any(map(len, append.block_ids)) for append in step.appends)
        return operation == operations.APPLY and not staged

    def undo(self) -> Callable[[], object]:
        """Staging the same writes again needs the block counts from before them."""
        num_blocks = self.tables.num_blocks
        # The quickest way to call `num_blocks[...] = before`: it runs within a timed region.
        return partial(num_blocks.__setitem__, ..., np.array(num_blocks))

    @classmethod
    def with_other_contents(cls, workload: Workload, rng: np.random.Generator) -> Workload:
        """See the base class: with other block ids, so that all results differ."""
        return relabel(workload, rng)

    def take(self, workload: Workload, steps: Sequence[StepInputs]) -> Sequence[StepInputs]:
        """See the base class."""
        self.tables.restore(self._start)
        written: set[int] = set()
        for append in workload.setup:  # over what the rows hold
            overwrite = append.overwrite or append.row not in written
            written.add(append.row)
            lists = copied(append).block_ids
            self.tables.append_block_ids(append.row, lists, overwrite)
        self.tables.apply_staged_writes()
        return [
            replace(inputs, appends=tuple(map(copied, step.appends)))
            for inputs, step in zip(steps, workload.steps, strict=True)
        ]

    def replayed(self, call: Callable[[], object]) -> None:
        """Tables do not see which rows a graph fills.

        Tables that take a capture for a call need not be told, and are not.
        """
        if not isinstance(call, partial) or "out" in call.keywords:
            return
        tables = getattr(call.func, "__self__", None)
        if tables is not None and getattr(call.func, "__name__", "") in GATHERS:
            tables.num_dirty_rows = call.args[0].shape[0]

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
