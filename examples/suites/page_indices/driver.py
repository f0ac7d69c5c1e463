"""The driver that runs variants through a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from bt_bench.protocol import Driver, Operation

from .workload import PageWorkload


@dataclass(frozen=True)
class StepInputs:
    """One step, with its lists on the host and its mapping on the device.

    Args:
        rows: request rows whose lengths are staged, as a scheduler's list.
        lengths: lengths in tokens, one for each of `rows`.
        idx_mapping: `[R]` int32, the row of each request of the batch.
    """

    rows: list[int]
    lengths: list[int]
    idx_mapping: torch.Tensor


class PageDriver(Driver):
    """The page indices of a variant, initialised with the lengths before the first step.

    Args:
        variant: class of the variant.
        workload: page table and lengths.
        device: device of the tensors.
    """

    def __init__(self, variant: type[Any], workload: PageWorkload, device: torch.device) -> None:
        page_table = torch.tensor(workload.page_table, device=device)
        self.variant = variant(page_table, workload.page_size)
        self._start = list(range(len(workload.lengths))), workload.lengths.tolist()
        self.rewind()

    @classmethod
    def inputs_on(cls, device: torch.device, workload: PageWorkload) -> list[StepInputs]:
        """See the base class."""
        return [
            StepInputs(
                step.rows.tolist(),
                step.lengths.tolist(),
                torch.tensor(step.idx_mapping, device=device),
            )
            for step in workload.steps
        ]

    def call(self, operation: Operation, step: StepInputs) -> Callable[[], object]:
        """See the base class."""
        if operation.traits.on_host:
            return partial(self.variant.set_lengths, step.rows, step.lengths)
        return partial(self.variant.build, step.idx_mapping)

    def rewind(self) -> None:
        """See the base class. Lengths are the only state that a step leaves behind."""
        self.variant.set_lengths(*self._start)

    def replayed(self, call: Callable[[], object]) -> None:
        """See the base class: the device has read the lengths once more."""
        self.variant.note_replay()

    def outputs(self) -> Mapping[str, torch.Tensor]:
        """See the base class."""
        return {
            "indptr": self.variant.indptr,
            "indices": self.variant.indices,
            "last_page_len": self.variant.last_page_len,
        }

    def state(self) -> Mapping[str, torch.Tensor]:
        """See the base class. The page table belongs here because nothing may change it."""
        return {"lengths": self.variant.lengths, "page_table": self.variant.page_table}

    def inputs_of(self, step: StepInputs) -> Mapping[str, torch.Tensor]:
        """See the base class."""
        return {"idx_mapping": step.idx_mapping}

    def results(self, operation: Operation, step: StepInputs) -> Mapping[str, torch.Tensor] | None:
        """See the base class."""
        if operation.traits.on_host:
            return None
        num_reqs = step.idx_mapping.shape[0]
        return {
            "indptr": self.variant.indptr[: num_reqs + 1],
            "indices": self.variant.indices,
            "last_page_len": self.variant.last_page_len[:num_reqs],
        }
