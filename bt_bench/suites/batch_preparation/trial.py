"""A check of variants that prepare batches: the common one, and one of the returned batch.

Tensors that are new in each step are compared with the reference's. They are kept for many further
steps, and compared again after each of these: a reader may hold them so long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bt_bench.base.names import Path
from bt_bench.protocol import Driver, Guard, MismatchError, Operation, Through
from bt_bench.suites.batch_preparation import operations
from bt_bench.worker.checking.comparing import compare_exactly, compare_view, kind_of
from bt_bench.worker.checking.plain_trial import ExpectedStep, PlainTrial, VariantUnderCheck
from bt_kernels.batch_inputs.interface import NEW, PERSISTENT

KEPT_STEPS = 64
"""Steps for which a reader keeps tensors that were new in one."""

ALIGNMENT = 16  # bytes

_HOST = ("query_start_loc_np", "cu_num_logits_np")


@dataclass
class Kept:
    """Tensors that a step made, and their contents right after it."""

    index: int
    tensors: Mapping[str, torch.Tensor]
    contents: Mapping[str, torch.Tensor]


@dataclass
class InputsUnderCheck(VariantUnderCheck):
    """A variant under check, with the tensors of earlier steps.

    Args:
        kept: of each earlier step.
    """

    kept: list[Kept] = field(default_factory=list)


class InputTrial(PlainTrial):
    """See the base class, and this module."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._results: dict[int, Any] = {}  # by step, what the reference's call returns

    def begin(self, variant: type[Any], guard: Guard) -> InputsUnderCheck:
        """See the base class."""
        return InputsUnderCheck(**vars(super().begin(variant, guard)))

    def resume(self, driver: Driver) -> InputsUnderCheck:
        """See the base class."""
        return InputsUnderCheck(**vars(super().resume(driver)))

    def expect(self, index: int) -> dict[Path, ExpectedStep]:
        """See the base class; keeps the batch that the reference returns, the same for any path."""
        expected = super().expect(index)
        reference = next(iter(self._references.values()))
        step = self._reference_inputs[index]
        self._results[index] = reference.call(operations.INPUTS, step)()
        return expected

    def step(
        self,
        subject: VariantUnderCheck,
        path: Path,
        index: int,
        expected: Mapping[Path, ExpectedStep],
        through: Through,
        guard: Guard,
        inputs: Any | None = None,
    ) -> None:
        """See the base class."""
        results: list[tuple[Operation, object]] = []

        def noted(variant: Any, operation: Operation, call: Any) -> object:
            result = through(variant, operation, call)
            if operation != operations.STAGE:
                results.append((operation, result))
            return result

        super().step(subject, path, index, expected, noted, guard, inputs)
        assert isinstance(subject, InputsUnderCheck)
        for kept in subject.kept:
            _compare_kept(kept, index)
        for operation, result in results:
            compare_batch(operation, result, self._results[index], subject.driver.variant)
            tensors = {name: getattr(result, name) for name in NEW}
            contents = {name: tensor.clone() for name, tensor in tensors.items()}
            subject.kept.append(Kept(index, tensors, contents))
        del subject.kept[:-KEPT_STEPS]

    def compared(self, subject: VariantUnderCheck) -> list[str]:
        """See the base class."""
        return [*super().compared(subject), *NEW]


def _compare_kept(kept: Kept, index: int) -> None:
    """Check that no later step has changed the tensors of an earlier one."""
    for name, tensor in kept.tensors.items():
        if not torch.equal(tensor, kept.contents[name]):
            raise MismatchError(
                f"{name} of step {kept.index} was changed by step {index}, while a reader held it; "
                "expected tensors that are new in each step to keep their contents"
            )


def compare_batch(operation: str, result: Any, wanted: Any, variant: Any) -> None:
    """Compare the batch that a call returned with the reference's.

    Args:
        operation: `inputs` or `prepare`.
        result: the batch that the variant's call returned.
        wanted: the batch that `prepare_inputs` of the reference returned.
        variant: the variant's object.

    Raises:
        MismatchError: names the first difference.
    """
    for name in (*NEW, *PERSISTENT, *_HOST, "num_draft_tokens"):
        if not hasattr(result, name):
            raise MismatchError(
                f"{operation} returned {kind_of(result)}, which has no {name}; expected a "
                "PreparedBatch"
            )
    for name in NEW:
        _compare_new(name, getattr(result, name), getattr(wanted, name))
    is_shared = result.expanded_idx_mapping is result.idx_mapping
    if is_shared != (wanted.expanded_idx_mapping is wanted.idx_mapping):
        raise MismatchError(
            f"expanded_idx_mapping is {'' if is_shared else 'not '}the object idx_mapping; "
            f"expected {'another' if is_shared else 'the same'} one"
        )
    for name in PERSISTENT:
        size = len(getattr(wanted, name))
        compare_view(f"{operation}'s {name}", getattr(result, name), _whole(variant, name)[:size])
    for name in _HOST:
        found, right = getattr(result, name), getattr(wanted, name)
        if not isinstance(found, np.ndarray) or found.dtype != right.dtype:
            raise MismatchError(f"{name} is {kind_of(found)}; expected an array of {right.dtype}")
        if not np.array_equal(found, right):
            raise MismatchError(f"{name} is {found.tolist()}; expected {right.tolist()}")
    if result.num_draft_tokens != wanted.num_draft_tokens:
        raise MismatchError(
            f"num_draft_tokens is {result.num_draft_tokens}; expected {wanted.num_draft_tokens}"
        )
    if operation == operations.PREPARE:
        _compare_tables(result, wanted, variant.tables)


def _compare_new(name: str, found: Any, wanted: torch.Tensor) -> None:
    if not isinstance(found, torch.Tensor) or found.dtype != wanted.dtype:
        kind = found.dtype if isinstance(found, torch.Tensor) else kind_of(found)
        raise MismatchError(f"{name} is of {kind}; expected a tensor of {wanted.dtype}")
    if not found.is_contiguous() or found.data_ptr() % ALIGNMENT:
        raise MismatchError(
            f"{name} is not contiguous, or begins at no multiple of {ALIGNMENT} "
            "bytes; expected both"
        )
    compare_exactly(name, found, wanted.to(found.device))


def _whole(variant: Any, name: str) -> torch.Tensor:
    whole: torch.Tensor = getattr(variant.buffers, name)
    return whole


def _compare_tables(result: Any, wanted: Any, tables: Any) -> None:
    """Check that block tables and slots are views of the tables' buffers, in padded sizes."""
    views, reqs = result.block_tables, len(wanted.seq_lens)
    if not isinstance(views, (tuple, list)) or len(views) != len(tables.input_block_tables):
        raise MismatchError(
            f"block_tables is {kind_of(views)}; expected {len(tables.input_block_tables)} tables"
        )
    for group, (view, whole) in enumerate(zip(views, tables.input_block_tables, strict=True)):
        compare_view(f"block_tables[{group}]", view, whole[:reqs])
    slots = tables.slot_mappings[:, : len(wanted.positions)]
    compare_view("slot_mappings", result.slot_mappings, slots)
