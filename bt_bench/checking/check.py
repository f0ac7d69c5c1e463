"""Runs variants and reference side by side: fresh inputs, poisoned outputs, every step compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from bt_bench import activity
from bt_bench.arms import (
    Arm,
    ArmFailedError,
    StepInputs,
    bind,
    is_fatal,
    reason_of,
    stage,
    step_on,
    synchronize,
)
from bt_bench.catalogue import load_reference
from bt_bench.checking.buffers import (
    COMPARED,
    Buffers,
    MismatchError,
    addresses_of,
    buffers_of,
    compare_addresses,
    compare_buffers,
    compare_inputs,
    compare_results,
    copies_on,
    poison,
)
from bt_bench.checking.interpreter_guard import OutOfBoundsError, guarded_memory
from bt_bench.checking.paths import PATHS, Path
from bt_bench.model import CheckReport, Operation, Reason, ReasonCode
from bt_bench.raised import is_interrupt
from bt_bench.tasks import CheckOutcome, CheckOutcomes
from bt_bench.workloads.steps import Append, Workload

# Makes a call of an operation on some tables, and returns what the call returned.
Through = Callable[[Any, Operation, Callable[[], object]], object]

SPARE_POSITIONS = 5  # garbage after the positions, which may be a longer buffer than T


def check(
    variants: Mapping[str, type[Any]],
    workload: Workload,
    operations: Sequence[Operation],
    device: torch.device,
    *,
    rounds: int = 1,
    seed: int = 0,
    title: str = "check",
) -> CheckOutcomes:
    """Runs variants and reference side by side through a workload, and compares every step.

    Before each round the source tables are filled with garbage and all block ids are replaced by
    others, large ones too; before each step the outputs are poisoned. After it the source tables,
    input tables, slot mappings and block counts are compared whole, what the calls returned, and
    the inputs. After the window a refused append and `restore` are tried.

    Args:
        variants: class by name.
        workload: what to run.
        operations: those that will be timed; each is checked through the calls it is timed in.
        device: where the variants run; the reference runs on the CPU.
        rounds: replays of the window, each with other block ids.
        seed: of garbage, poison and ids.
        title: how messages call the workload.

    Returns:
        An outcome for each variant and operation.

    Raises:
        ArmFailedError: when a variant has run out of memory or has taken the device with it; the
            others have to be checked without it, in a fresh process.
    """
    paths = list(dict.fromkeys(PATHS[operation] for operation in operations))
    subjects = {(name, path): _Subject(name, path, device) for name in variants for path in paths}
    rng = np.random.default_rng(seed)
    for round_index in range(rounds):
        fresh = _relabel(workload, rng)
        where = f"{title}, round {round_index}"
        _check_round(variants, list(subjects.values()), fresh, device, rng, where)
    return {
        (name, operation): subjects[name, PATHS[operation]].outcome()
        for name in variants
        for operation in operations
    }


def verify_after_timing(
    arms: Iterable[Arm],
    steps: Sequence[StepInputs],
    workload: Workload,
    operation: Operation,
    device: torch.device,
    *,
    through: Through | None = None,
) -> dict[str, Reason]:
    """Compares arms that have been timed once more, on the very inputs that were timed.

    A variant may be right the first time and then reuse what it remembers, or be spoiled by a
    replay: numbers of an arm that is wrong now are numbers of something else.

    Args:
        arms: each in any state; several may have one name.
        steps: the inputs that were timed.
        workload: what they were made of.
        operation: what was timed.
        device: where the arms are.
        through: makes each call as it was timed; plainly if not given.

    Returns:
        The reason for each arm that fails.

    Raises:
        ArmFailedError: as `check`.
    """
    reference = load_reference()(workload.layout, "cpu")
    _append_setup(reference, workload)
    subjects = [_Subject(arm.name, PATHS[operation], device, through) for arm in arms]
    for subject, arm in zip(subjects, arms, strict=True):
        subject.tables = arm.tables
        subject.attempt("after timing, restore", arm.rewind)
    for index, given in enumerate(workload.steps):
        value = -1000 - index
        poison(reference, value)
        _run(reference, (Operation.STEP,), step_on(torch.device("cpu"), workload, given))
        expected = copies_on(device, buffers_of(reference))
        for subject in subjects:
            subject.step(f"after timing, step {index}", expected, value, steps[index], given)
    return {subject.name: subject.reason for subject in subjects if subject.reason is not None}


class _Subject:
    """A variant under check on one path, and how it ended."""

    def __init__(
        self, name: str, path: Path, device: torch.device, through: Through | None = None
    ) -> None:
        self.name = name
        self.path = path
        self._device = device
        self._through = through or _plainly
        self.tables: Any = None
        self.addresses: dict[str, int] = {}
        self.start: Any = None  # snapshot before the first step
        self.reason: Reason | None = None
        self.steps = 0

    def attempt(self, where: str, action: Callable[[], None]) -> None:
        """Runs part of the check unless the subject has failed, and notes a failure.

        Raises:
            ArmFailedError: when nothing more can be run in this process.
        """
        if self.reason is not None:
            return
        before = activity.current().enter(self.name)
        try:
            action()
            synchronize(self._device)  # what the device has against it shows here
        except MismatchError as mismatch:
            calls = "+".join(self.path)
            self.reason = Reason(
                code=ReasonCode.WRONG_RESULT, message=f"{where}, calls {calls}: {mismatch}"
            )
        except OutOfBoundsError as error:
            self.reason = Reason(code=ReasonCode.OUT_OF_BOUNDS, message=f"{where}: {error}")
        except BaseException as error:  # SystemExit too: a variant must not end the run
            if is_interrupt(error):
                raise
            if is_fatal(error, self._device):
                raise ArmFailedError(self.name, error, where) from error
            self.reason = reason_of(error, where)
        finally:
            activity.current().leave(before)
        if self.reason is not None:
            self.tables = None

    def step(
        self,
        where: str,
        expected: Buffers,
        poison_value: int,
        step: StepInputs,
        given: Any,
    ) -> None:
        """Runs one step and compares everything."""

        def run() -> None:
            poison(self.tables, poison_value)
            with _bounds(self._device, self.tables, step):
                results = _run(self.tables, self.path, step, self._through)
            compare_buffers(expected, self.tables, poison_value)
            compare_results(results, self.tables, step)
            compare_inputs(given, step)
            if self.addresses:
                compare_addresses(self.addresses, self.tables)
            self.steps += 1

        self.attempt(where, run)

    def outcome(self) -> CheckOutcome:
        """How it ended."""
        if self.reason is not None:
            return CheckOutcome(None, self.reason)
        return CheckOutcome(CheckReport(steps=self.steps, buffers=COMPARED), None)


def _check_round(
    variants: Mapping[str, type[Any]],
    subjects: Sequence[_Subject],
    workload: Workload,
    device: torch.device,
    rng: np.random.Generator,
    where: str,
) -> None:
    garbage = [int(value) for value in rng.integers(0, 2**31, workload.layout.num_groups)]
    reference = load_reference()(workload.layout, "cpu")
    _set_up(reference, workload, garbage)
    start = copies_on(device, buffers_of(reference))
    for subject in subjects:

        def set_up(subject: _Subject = subject) -> None:
            subject.tables = variants[subject.name](workload.layout, device)
            with _bounds(device, subject.tables):
                _set_up(subject.tables, workload, garbage)
            subject.addresses = addresses_of(subject.tables)
            subject.start = subject.tables.snapshot()

        subject.attempt(f"{where}, set-up", set_up)
    for index, given in enumerate(workload.steps):
        value = int(rng.integers(-(2**31), -1))
        poison(reference, value)
        _run(reference, (Operation.STEP,), step_on(torch.device("cpu"), workload, given))
        expected = copies_on(device, buffers_of(reference))
        for subject in subjects:
            # Inputs of its own: what one variant does to them must not be held against another.
            step = step_on(device, workload, given, spare=SPARE_POSITIONS)
            subject.step(f"{where}, step {index}", expected, value, step, given)
    for subject in subjects:
        subject.attempt(f"{where}, refusal", partial(_check_refusal, subject, workload))
        subject.attempt(f"{where}, restore", partial(_check_restore, subject, start))


def _check_refusal(subject: _Subject, workload: Workload) -> None:
    """A row that would become wider than its table is refused, and nothing is changed."""
    tables = subject.tables
    before = copies_on(torch.device("cpu"), buffers_of(tables))
    for group, width in enumerate(workload.layout.widths):
        ids = [[1] * (width + 1) if g == group else [1] for g in range(workload.layout.num_groups)]
        try:
            tables.append_block_ids(0, ids, True)
        except ValueError:
            continue
        raise MismatchError(
            f"append_block_ids took {width + 1} blocks for a row of group {group}, which is "
            f"{width} wide; expected a ValueError"
        )
    tables.apply_staged_writes()
    compare_buffers(before, tables)


def _check_restore(subject: _Subject, start: Buffers) -> None:
    """A restored snapshot is the state before the first step, in place."""
    subject.tables.append_block_ids(0, [[] for _ in subject.tables.block_tables], True)
    subject.tables.restore(subject.start)
    subject.tables.apply_staged_writes()
    outputs = ("slot_mappings", "input_block_tables")
    compare_buffers(
        {name: buffer for name, buffer in start.items() if not name.startswith(outputs)},
        subject.tables,
    )
    compare_addresses(subject.addresses, subject.tables)


def _set_up(tables: Any, workload: Workload, garbage: list[int]) -> None:
    """Brings tables to the state before the first step, with garbage in all they do not own."""
    state = tables.snapshot()
    for index, table in enumerate(state.block_tables):
        # A ramp, so that neighbouring columns and rows differ.
        ramp = torch.arange(table.numel(), dtype=torch.int64, device=table.device)
        table.copy_(((ramp * 7919 + garbage[index]) % 2**31).reshape(table.shape))
    tables.restore(state)
    _append_setup(tables, workload)


def _append_setup(tables: Any, workload: Workload) -> None:
    for append in workload.setup:
        ids = tuple(list(group_ids) for group_ids in append.block_ids)
        tables.append_block_ids(append.row, ids, append.overwrite)
    tables.apply_staged_writes()


def _bounds(device: torch.device, *owners: object) -> AbstractContextManager[None]:
    """Keeps interpreted kernels within their memory; on a GPU there is no such guard."""
    return guarded_memory(*owners) if device.type == "cpu" else nullcontext()


def _run(
    tables: Any, path: Path, step: StepInputs, through: Through | None = None
) -> list[tuple[Operation, Any]]:
    stage(tables, step)
    make = through or _plainly
    return [
        (operation, make(tables, operation, bind(tables, operation, step))) for operation in path
    ]


def _plainly(_tables: Any, _operation: Operation, call: Callable[[], object]) -> object:
    return call()


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
