"""An arm: one variant, set up for one workload, with the workload's steps on its device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from bt_bench.names import Operation
from bt_bench.results import Reason, ReasonCode
from bt_bench.variants import is_interrupt
from bt_bench.worker import activity
from bt_bench.worker.failures import ArmFailedError, synchronize
from bt_bench.worker.inputs import append_each, staging_call
from bt_bench.workloads import Workload

if TYPE_CHECKING:
    from bt_bench.worker.inputs import StepInputs


def lacking(variant: type[Any], workload: Workload) -> Reason | None:
    """The features that a variant lacks for a workload, as a reason; `None` if it lacks none."""
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
    """Tells tables that a call was replayed, since they do not see which rows a graph fills.

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
        """Attributes whatever raises in the block, or ends the process, to this arm.

        Work that is still running on the device when the block ends may fail in the block of
        another arm, so `synchronize` in the block unless the device is idle at its end.

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
        """Restores the state before the first step, and waits until the device has done so."""
        self.tables.restore(self._start)
        synchronize(self._device)

    def ready(
        self, operation: Operation, step: StepInputs, *, staged: bool = False
    ) -> Callable[[], object]:
        """Runs what precedes an operation in its step, and returns its call, ready to be made.

        Args:
            operation: what is called.
            step: the next one; `finish` it before the one after it.
            staged: its writes have been staged already.
        """
        if not operation.traits.on_host and not staged:
            stage(self.tables, step)
        if operation.traits.applies_first:
            self.tables.apply_staged_writes()
        return self.bind(operation, step)

    def finish(self, operation: Operation) -> None:
        """Runs what a step still lacks after an operation: what was staged has to be applied."""
        if operation.traits.on_host:
            self.tables.apply_staged_writes()

    def bind(self, operation: Operation, step: StepInputs) -> Callable[[], object]:
        """The call that performs an operation on a step, ready to be made."""
        return bind(self.tables, operation, step)
