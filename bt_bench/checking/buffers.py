"""Compares variants with the reference: whole buffers, exactly, on fresh inputs, poisoned first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from bt_bench.arms import StepInputs, bind, inputs_on, reason_of, stage
from bt_bench.catalogue import load_reference
from bt_bench.checking.interpreter_guard import OutOfBoundsError, guarded_memory
from bt_bench.model import CheckReport, Operation, Reason, ReasonCode
from bt_bench.workloads.steps import Append, Workload

# Operations that go through the same calls are checked together: a path is the sequence of calls
# that a whole step is made of.
PATHS: dict[Operation, tuple[Operation, ...]] = {
    Operation.STAGE: (Operation.APPLY, Operation.GATHER, Operation.SLOTS),
    Operation.APPLY: (Operation.APPLY, Operation.GATHER, Operation.SLOTS),
    Operation.GATHER: (Operation.APPLY, Operation.GATHER, Operation.SLOTS),
    Operation.SLOTS: (Operation.APPLY, Operation.GATHER, Operation.SLOTS),
    Operation.GATHER_SLOTS: (Operation.APPLY, Operation.GATHER_SLOTS),
    Operation.STEP: (Operation.STEP,),
}
Path = tuple[Operation, ...]


@dataclass(frozen=True)
class Verdict:
    """Outcome of one variant on one path: a report, or the reason why it failed."""

    report: CheckReport | None
    reason: Reason | None


class _MismatchError(Exception):
    """A buffer that differs from the reference's."""


class _Subject:
    """A variant under check on one path, and how it ended."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.tables: Any = None
        self.reason: Reason | None = None
        self.steps = 0

    def attempt(self, where: str, action: Callable[[], None]) -> None:
        """Runs part of the check unless the subject has failed, and notes a failure."""
        if self.reason is not None:
            return
        try:
            action()
        except _MismatchError as mismatch:
            self.reason = Reason(
                code=ReasonCode.WRONG_RESULT, message=f"{where}, calls {self._calls()}: {mismatch}"
            )
        except OutOfBoundsError as error:
            self.reason = Reason(code=ReasonCode.OUT_OF_BOUNDS, message=f"{where}: {error}")
        except Exception as error:
            self.reason = reason_of(error, where)
        if self.reason is not None:
            self.tables = None

    def verdict(self, buffers: list[str]) -> Verdict:
        if self.reason is not None:
            return Verdict(None, self.reason)
        return Verdict(CheckReport(steps=self.steps, buffers=buffers), None)

    def _calls(self) -> str:
        return "+".join(self.path)


def check(
    variants: Mapping[str, type[Any]],
    workload: Workload,
    operations: Sequence[Operation],
    device: torch.device,
    *,
    rounds: int = 1,
    seed: int = 0,
    title: str = "check",
) -> dict[tuple[str, Operation], Verdict]:
    """Runs variants and reference side by side through a workload, and compares every step.

    Before each round the source tables are filled with garbage and all block ids are replaced by
    others, large ones too; before each step the outputs are poisoned. After it the source tables,
    input tables, slot mappings and block counts are compared whole, and the step's own inputs.

    Args:
        variants: class by name.
        workload: what to run.
        operations: those that will be timed; each is checked through the calls it is timed in.
        device: where the variants run; the reference runs on the CPU.
        rounds: replays of the window, each with other block ids.
        seed: of garbage, poison and ids.
        title: how messages call the workload.

    Returns:
        A verdict for each variant and operation.
    """
    paths = list(dict.fromkeys(PATHS[operation] for operation in operations))
    subjects = {(name, path): _Subject(name, path) for name in variants for path in paths}
    rng = np.random.default_rng(seed)
    for round_index in range(rounds):
        fresh = _relabel(workload, rng)
        where = f"{title}, round {round_index}"
        _check_round(variants, subjects.values(), fresh, device, rng, where)
    buffers = ["block_tables", "input_block_tables", "slot_mappings", "num_blocks", "inputs"]
    return {
        (name, operation): subjects[name, PATHS[operation]].verdict(buffers)
        for name in variants
        for operation in operations
    }


def _check_round(
    variants: Mapping[str, type[Any]],
    subjects: Any,
    workload: Workload,
    device: torch.device,
    rng: np.random.Generator,
    where: str,
) -> None:
    garbage = [
        int(value) for value in rng.integers(-(2**31), 2**31, 2 * workload.layout.num_groups)
    ]
    reference = load_reference()(workload.layout, "cpu")
    _set_up(reference, workload, garbage)
    for subject in subjects:

        def set_up(subject: _Subject = subject) -> None:
            subject.tables = variants[subject.name](workload.layout, device)
            with _bounds(device, subject.tables):
                _set_up(subject.tables, workload, garbage)

        subject.attempt(f"{where}, set-up", set_up)
    reference_steps = inputs_on(torch.device("cpu"), workload)
    steps = inputs_on(device, workload)
    for index, (reference_step, step) in enumerate(zip(reference_steps, steps, strict=True)):
        poison = int(rng.integers(-(2**31), -1))
        _poison(reference, poison)
        _run(reference, (Operation.STEP,), reference_step)
        expected = _expected(reference, device)
        for subject in subjects:

            def run(
                subject: _Subject = subject,
                step: StepInputs = step,
                index: int = index,
                poison: int = poison,
                expected: Any = expected,
            ) -> None:
                _poison(subject.tables, poison)
                with _bounds(device, subject.tables, step):
                    results = _run(subject.tables, subject.path, step)
                _compare_state(expected, subject.tables, poison)
                _compare_views(results, subject.tables, step)
                _compare_inputs(workload, index, step)
                subject.steps += 1

            subject.attempt(f"{where}, step {index}", run)


def _set_up(tables: Any, workload: Workload, garbage: list[int]) -> None:
    """Brings tables to the state before the first step, with garbage in all they do not own."""
    state = tables.snapshot()
    for index, table in enumerate(state.block_tables):
        # A ramp, so that neighbouring columns and rows differ.
        ramp = torch.arange(table.numel(), dtype=torch.int64, device=table.device)
        wrapped = (ramp * 7919 + garbage[index]) % 2**31
        table.copy_(wrapped.reshape(table.shape))
    tables.restore(state)
    for append in workload.setup:
        tables.append_block_ids(append.row, append.block_ids, append.overwrite)
    tables.apply_staged_writes()


def _bounds(device: torch.device, *owners: object) -> AbstractContextManager[None]:
    """Keeps interpreted kernels within their memory; on a GPU there is no such guard."""
    return guarded_memory(*owners) if device.type == "cpu" else nullcontext()


def _poison(tables: Any, value: int) -> None:
    for table in tables.input_block_tables:
        table.fill_(value)
    tables.slot_mappings.fill_(value)


def _run(tables: Any, path: Path, step: StepInputs) -> list[Any]:
    stage(tables, step)
    return [bind(tables, operation, step)() for operation in path]


def _expected(reference: Any, device: torch.device) -> dict[str, torch.Tensor]:
    """The reference's buffers by name, on the device of the variants."""
    buffers = {"slot_mappings": reference.slot_mappings}
    for group, table in enumerate(reference.block_tables):
        buffers[f"block_tables[{group}]"] = table
    for group, table in enumerate(reference.input_block_tables):
        buffers[f"input_block_tables[{group}]"] = table
    buffers["num_blocks"] = torch.from_numpy(np.asarray(reference.num_blocks, dtype=np.int64))
    return {name: buffer.to(device) for name, buffer in buffers.items()}


def _compare_state(expected: dict[str, torch.Tensor], tables: Any, poison: int) -> None:
    actual = {"slot_mappings": tables.slot_mappings}
    for group, table in enumerate(tables.block_tables):
        actual[f"block_tables[{group}]"] = table
    for group, table in enumerate(tables.input_block_tables):
        actual[f"input_block_tables[{group}]"] = table
    num_blocks = np.asarray(tables.num_blocks, dtype=np.int64)
    actual["num_blocks"] = torch.from_numpy(num_blocks)
    for name, wanted in expected.items():
        found = actual.get(name)
        if found is None or found.shape != wanted.shape:
            shape = None if found is None else tuple(found.shape)
            raise _MismatchError(f"{name} has shape {shape}; expected {tuple(wanted.shape)}")
        different = found.to(wanted.device) != wanted
        if bool(different.any()):
            raise _MismatchError(_describe(name, found, wanted, different, poison))


def _describe(
    name: str, found: torch.Tensor, wanted: torch.Tensor, different: torch.Tensor, poison: int
) -> str:
    where = tuple(int(i) for i in different.nonzero()[0])
    value, right = int(found[where]), int(wanted[where])
    note = ""
    if value == poison:
        note = " (never written: it holds the poison)"
    elif right == poison:
        note = " (written although nothing may write there)"
    place = ", ".join(map(str, where))
    return (
        f"{name}[{place}] is {value}, expected {right}{note}; "
        f"{int(different.sum())} of {different.numel()} elements differ"
    )


def _compare_views(results: list[Any], tables: Any, step: StepInputs) -> None:
    """What is returned must be views of the persistent buffers, of the padded sizes."""
    for result in results:
        views, slots = _views_and_slots(result)
        for group, view in enumerate(views):
            whole = tables.input_block_tables[group]
            shape = (step.num_reqs_padded, whole.shape[1])
            _compare_view(f"returned block table of group {group}", view, whole, shape)
        if slots is not None:
            shape = (tables.slot_mappings.shape[0], step.num_tokens_padded)
            _compare_view("returned slot mappings", slots, tables.slot_mappings, shape)


def _views_and_slots(result: Any) -> tuple[Sequence[torch.Tensor], torch.Tensor | None]:
    if result is None:
        return (), None
    if isinstance(result, torch.Tensor):
        return (), result
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], tuple):
        return result[0], result[1]
    return result, None


def _compare_view(name: str, view: Any, whole: torch.Tensor, shape: tuple[int, int]) -> None:
    if tuple(view.shape) != shape:
        raise _MismatchError(f"{name} has shape {tuple(view.shape)}; expected {shape}")
    if view.numel() and view.data_ptr() != whole.data_ptr():
        raise _MismatchError(f"{name} is no view of the persistent buffer")


def _compare_inputs(workload: Workload, index: int, step: StepInputs) -> None:
    given = workload.steps[index]
    names = ("idx_mapping", "query_start_loc", "positions")
    for name, tensor in zip(names, step.tensors, strict=True):
        if not np.array_equal(tensor.cpu().numpy(), getattr(given, name)):
            raise _MismatchError(f"the argument {name} was changed; expected it to be only read")


def _relabel(workload: Workload, rng: np.random.Generator) -> Workload:
    """The same workload with other block ids: a random bijection of `[0, 2**31)`."""
    factor = int(rng.integers(0, 2**30)) * 2 + 1
    offset = int(rng.integers(0, 2**31))

    def relabel(append: Append) -> Append:
        ids = (np.asarray(i, dtype=np.uint64) * factor + offset for i in append.block_ids)
        return replace(append, block_ids=tuple((i & 0x7FFF_FFFF).tolist() for i in ids))

    setup = tuple(relabel(append) for append in workload.setup)
    steps = tuple(
        replace(step, appends=tuple(relabel(append) for append in step.appends))
        for step in workload.steps
    )
    return replace(workload, setup=setup, steps=steps)
