"""The driver of variants that prepare batches: their set-up, calls, and state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from bt_bench.protocol import Driver, Operation
from bt_bench.suites.batch_preparation import operations
from bt_bench.suites.batch_preparation.inputs import Requests, StepInputs, inputs_on
from bt_bench.suites.batch_preparation.trial import InputTrial
from bt_bench.suites.batch_preparation.workloads.workload import InputWorkload
from bt_bench.suites.block_tables.checking.buffers import tensors_of
from bt_bench.suites.block_tables.inputs import (
    append_each,
    copied,
    set_up_again,
    staging_call,
    undo_staging,
)
from bt_bench.suites.block_tables.vllm.differences import differences_of
from bt_kernels.interface import TableState


class InputDriver(Driver):
    """A variant with the state of its requests, and block tables filled by the setup.

    Args:
        variant: class of the variant.
        workload: sizes, tokens and setup.
        device: where its tensors live.
        start: a snapshot of the tables from after the setup, restored instead of staging it again.
    """

    trial = InputTrial

    def __init__(
        self,
        variant: type[Any],
        workload: InputWorkload,
        device: torch.device,
        start: TableState | None = None,
    ) -> None:
        self.requests = Requests.of(workload.layout, workload.tokens, device)
        self.variant = variant(
            workload.table_layout, workload.layout, self.requests.tensors, device
        )
        tables = self.variant.tables
        if start is None:
            append_each(tables, workload.setup)
            tables.apply_staged_writes()
            start = tables.snapshot()
        else:
            tables.restore(start)
        self._start = start

    @classmethod
    def like(
        cls, first: InputDriver, variant: type[Any], workload: InputWorkload, device: torch.device
    ) -> InputDriver:
        """See the base class: the first instance's tables are copied, as in block tables."""
        return cls(variant, workload, device, first._start)

    @classmethod
    def inputs_on(cls, device: torch.device, workload: InputWorkload) -> list[StepInputs]:
        """See the base class."""
        return inputs_on(device, workload)

    def call(self, operation: Operation, step: StepInputs) -> Callable[[], object]:
        """See the base class."""
        if operation == operations.STAGE:
            return staging_call(self.variant.tables, step.appends, step.batched)
        if operation == operations.INPUTS:
            return partial(self.variant.prepare_inputs, *step.arguments())
        return partial(self.variant.prepare, *step.arguments())

    def rewind(self) -> None:
        """See the base class."""
        self.variant.tables.restore(self._start)
        self.requests.forget()

    def prepare(self, operation: Operation, step: StepInputs) -> None:
        """Put the requests into the state of the step, as kernels of the engine have done.

        Before staging is repeated, apply the writes: tables may append to a write that they hold.
        """
        if operation == operations.STAGE:
            self.variant.tables.apply_staged_writes()
        else:
            self.requests.take(step)

    def finish(self, operation: Operation) -> None:
        """Apply the writes that `stage` left, before the next step."""
        if operation == operations.STAGE:
            self.variant.tables.apply_staged_writes()

    def undo(self) -> Callable[[], object]:
        """See the base class."""
        return undo_staging(self.variant.tables)

    @classmethod
    def with_other_contents(
        cls, workload: InputWorkload, rng: np.random.Generator
    ) -> InputWorkload:
        """See the base class: other block ids and tokens of the same sizes."""
        # Sequences, sampled tokens and drafts are in tensors that all arms share.
        return replace(workload.varied(rng), tokens=workload.tokens)

    def take(self, workload: InputWorkload, steps: Sequence[StepInputs]) -> Sequence[StepInputs]:
        """See the base class."""
        set_up_again(self.variant.tables, self._start, workload.setup)
        self.requests.forget()
        return _other_steps(workload, steps)

    def take_like(
        self, first: InputDriver, workload: InputWorkload, steps: Sequence[StepInputs]
    ) -> Sequence[StepInputs]:
        """See the base class: the tables are copied, as in block tables."""
        self.variant.tables.restore(first.variant.tables.snapshot())
        self.requests.forget()
        return _other_steps(workload, steps)

    def outputs(self) -> Mapping[str, torch.Tensor]:
        """See the base class: the persistent buffers, tables and slots, whole."""
        buffers, tables = self.variant.buffers, self.variant.tables
        found = {
            "input_ids": buffers.input_ids,
            "positions": buffers.positions,
            "is_padding": buffers.is_padding.view(torch.uint8),
            "query_start_loc": buffers.query_start_loc,
            "seq_lens": buffers.seq_lens,
            "dcp_local_seq_lens": buffers.dcp_local_seq_lens,
            "next_prefill_tokens": self.requests.tensors.next_prefill_tokens,
        }
        named = tensors_of(tables)
        return found | {name: t for name, t in named.items() if not name.startswith("block_")}

    def state(self) -> Mapping[str, torch.Tensor]:
        """See the base class: source tables, and the state of the requests, which stays as it is.

        The numbers of blocks are in host memory, which calls must not replace either.
        """
        tables = self.variant.tables
        named = tensors_of(tables)
        found = {name: t for name, t in named.items() if name.startswith("block_")}
        found |= {"num_blocks": torch.from_numpy(np.asarray(tables.num_blocks))}
        return found | self.requests.by_step() | {"sequences": self.requests.sequences}

    def inputs_of(self, step: StepInputs) -> Mapping[str, torch.Tensor]:
        """See the base class."""
        arrays = {
            "rows": step.rows,
            "query_lens": step.query_lens,
            "prefill_lens": step.prefill_lens,
        }
        if step.num_drafts is not None:
            arrays["num_drafts"] = step.num_drafts
        found = {name: torch.from_numpy(array) for name, array in arrays.items()}
        names = ("num_computed_tokens", "prefill_len", "last_sampled_tokens", "draft_tokens")
        return found | {name: getattr(step, name) for name in names}

    @classmethod
    def differences_of(cls, variant: type[Any]) -> list[str]:
        """See the base class."""
        return sorted(differences_of(variant))


def _other_steps(workload: InputWorkload, steps: Sequence[StepInputs]) -> Sequence[StepInputs]:
    taken = []
    for inputs, step in zip(steps, workload.steps, strict=True):
        appends = tuple(map(copied, step.appends))
        taken.append(replace(inputs, appends=appends, batched=inputs.batched.of(appends)))
    return taken
