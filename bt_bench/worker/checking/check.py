"""Runs variants and reference side by side: fresh inputs, poisoned outputs, every step compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from bt_bench.names import Operation
from bt_bench.results import Reason
from bt_bench.variants import OUT_PTRS, REFUSALS, load_reference
from bt_bench.worker.arm import Arm, lacking
from bt_bench.worker.checking.buffers import (
    Buffers,
    MismatchError,
    addresses_of,
    buffers_of,
    compare_addresses,
    compare_buffers,
    compare_dummies,
    copies_on,
    poison,
)
from bt_bench.worker.checking.differences import as_defined, differences_of, undefined_on
from bt_bench.worker.checking.subject import Subject, Through, run
from bt_bench.worker.inputs import (
    CustomOutputs,
    StepInputs,
    append_each,
    append_many_of,
    copied,
    outputs_on,
    step_on,
)
from bt_bench.worker.tasks import CheckOutcome, CheckOutcomes
from bt_bench.workloads import Append, Workload

SPARE_POSITIONS = 5  # garbage after the positions, which may be a longer buffer than T
DUMMY_POISON = -1000  # what outputs hold before they are emptied
SPARE_OUTPUTS = 2  # rows and slots that no step reads, in buffers that the caller gives


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
    input tables, slot mappings and block counts are compared whole, as are the results of the
    calls and the inputs. After the window dummy outputs, a refused append and `restore` are tried.
    A variant that lacks a feature of the workload is not run, and that is its outcome.

    Args:
        variants: class by name.
        workload: what to run.
        operations: those that will be timed; each is checked through the calls it is timed in.
        device: where the variants run; the reference runs on the CPU.
        rounds: replays of the window, each with other block ids.
        seed: for garbage, poison and ids.
        title: what messages call the workload.

    Returns:
        An outcome for each variant and operation.

    Raises:
        ArmFailedError: when a variant has run out of memory or has taken the device with it; the
            others have to be checked without it, in a fresh process.
    """
    reasons = {
        name: lacking(variant, workload) or undefined_on(variant, workload)
        for name, variant in variants.items()
    }
    able = {name: variant for name, variant in variants.items() if reasons[name] is None}
    paths = list(dict.fromkeys(operation.path for operation in operations))
    subjects = {
        (name, path): Subject(name, path, device, differences=differences_of(variant))
        for name, variant in able.items()
        for path in paths
    }
    rng = np.random.default_rng(seed)
    for round_index in range(rounds if able else 0):
        fresh = _relabel(workload, rng)
        where = f"{title}, round {round_index}"
        _check_round(able, list(subjects.values()), fresh, device, rng, where)
    return {
        (name, operation): subjects[name, operation.path].outcome()
        if name in able
        else CheckOutcome(None, reasons[name])
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

    A variant may be right the first time and then reuse what it remembers, or be corrupted by a
    replay. If an arm is wrong now, its times are those of something else.

    Args:
        arms: each in any state; several may have one name.
        steps: the inputs that were timed.
        workload: what they were made of.
        operation: what was timed.
        device: where the arms are.
        through: makes each call as it was timed; by default a plain call.

    Returns:
        The reason for each arm that fails.

    Raises:
        ArmFailedError: as `check`.
    """
    reference = load_reference()(workload.layout, "cpu")
    _append_setup(reference, workload)
    outputs = outputs_on(torch.device("cpu"), workload)
    arms = list(arms)
    path = operation.path
    subjects = [
        Subject(arm.name, path, device, through, differences_of(arm.tables)) for arm in arms
    ]
    for subject, arm in zip(subjects, arms, strict=True):
        subject.tables = arm.tables
        subject.attempt("after timing, restore", arm.rewind)
    for index, given in enumerate(workload.steps):
        value = -1000 - index
        expected = copies_on(device, _expected(reference, workload, index, value, outputs))
        for subject in subjects:
            subject.step(f"after timing, step {index}", expected, value, steps[index], given)
    return {subject.name: subject.reason for subject in subjects if subject.reason is not None}


def _expected(
    reference: Any, workload: Workload, index: int, value: int, outputs: CustomOutputs | None
) -> Buffers:
    """What all buffers must hold after a step, if its outputs were poisoned before."""
    poison(reference, value, outputs)
    step = step_on(torch.device("cpu"), workload, workload.steps[index], outputs=outputs)
    append_each(reference, step.appends)  # all other ways to stage must be equivalent
    run(reference, (Operation.STEP,), step)
    return buffers_of(reference, outputs)


def _check_round(
    variants: Mapping[str, type[Any]],
    subjects: Sequence[Subject],
    workload: Workload,
    device: torch.device,
    rng: np.random.Generator,
    where: str,
) -> None:
    garbage = [int(value) for value in rng.integers(0, 2**31, workload.layout.num_groups)]
    reference = load_reference()(workload.layout, "cpu")
    _set_up(reference, workload, garbage)
    outputs = outputs_on(torch.device("cpu"), workload, SPARE_OUTPUTS)
    start = copies_on(device, buffers_of(reference))
    for subject in subjects:

        def set_up(subject: Subject = subject) -> None:
            subject.tables = variants[subject.name](workload.layout, device)
            with subject.guard():
                _set_up(subject.tables, workload, garbage)
            subject.outputs = outputs_on(device, workload, SPARE_OUTPUTS)
            subject.addresses = addresses_of(subject.tables)
            subject.start = subject.tables.snapshot()

        subject.attempt(f"{where}, set-up", set_up)
    for index, given in enumerate(workload.steps):
        value = int(rng.integers(-(2**31), -1))
        expected = copies_on(device, _expected(reference, workload, index, value, outputs))
        for subject in subjects:
            # Its own inputs, so that one variant cannot spoil those of another.
            own = _given_outputs(subject, index)
            step = step_on(device, workload, given, spare=SPARE_POSITIONS, outputs=own)
            subject.step(f"{where}, step {index}", expected, value, step, given, turn=index)
    most_reqs, most_tokens = workload.layout.max_num_reqs, workload.layout.max_num_batched_tokens
    # The second call must empty what the first one left to be filled.
    for sizes in ((most_reqs // 2, most_tokens // 2), (0, 0)):
        expected = copies_on(device, _expected_of_dummies(reference, *sizes))
        for subject in subjects:
            dummies = partial(_check_dummies, subject, expected, *sizes)
            subject.attempt(f"{where}, dummy outputs", dummies)
    for subject in subjects:
        subject.attempt(f"{where}, refusal", partial(_check_refusal, subject, workload))
        subject.attempt(f"{where}, restore", partial(_check_restore, subject, start))


def _given_outputs(subject: Subject, index: int) -> CustomOutputs | None:
    """The caller's buffers for a step; in every other step their addresses are not passed."""
    outputs = subject.outputs
    if outputs is None or index % 2 == 0 or OUT_PTRS in subject.differences:
        return outputs
    return replace(outputs, addresses=None)


def _expected_of_dummies(reference: Any, num_reqs: int, num_tokens: int) -> Buffers:
    poison(reference, DUMMY_POISON)
    reference.get_dummy_block_tables(num_reqs)
    reference.get_dummy_slot_mappings(num_tokens)
    return buffers_of(reference)


def _check_dummies(subject: Subject, expected: Buffers, num_reqs: int, num_tokens: int) -> None:
    """Checks that dummy outputs are empty and at the persistent addresses, if there are any."""
    tables = subject.tables
    if not hasattr(tables, "get_dummy_block_tables"):
        return
    poison(tables, DUMMY_POISON)
    with subject.guard():
        views = tables.get_dummy_block_tables(num_reqs)
        slots = tables.get_dummy_slot_mappings(num_tokens)
    wanted = as_defined(subject.differences, tables, expected, DUMMY_POISON, num_reqs=0)
    compare_buffers(wanted, tables, DUMMY_POISON)
    compare_dummies(views, slots, tables, num_reqs, num_tokens)
    compare_addresses(subject.addresses, tables)


def _check_refusal(subject: Subject, workload: Workload) -> None:
    """Checks that a row wider than its table is refused, and that nothing changes.

    Other rows that the same call stages must not change either.
    """
    if REFUSALS in subject.differences:
        return
    tables = subject.tables
    append_many = append_many_of(tables)
    num_groups = workload.layout.num_groups
    before = copies_on(torch.device("cpu"), buffers_of(tables))
    for group, width in enumerate(workload.layout.widths):
        ids = [[1] * (width + 1) if g == group else [1] for g in range(num_groups)]
        wider = f"{width + 1} blocks for a row of group {group}, which is {width} wide"
        _check_refused(f"append_block_ids took {wider}", tables.append_block_ids, 0, ids, True)
        if append_many is not None:
            good: list[list[int]] = [[1] for _ in range(num_groups)]
            many = [0, 0], [good, ids], [True, True]
            _check_refused(f"append_many took {wider}", append_many, *many)
    tables.apply_staged_writes()
    compare_buffers(before, tables)


def _check_refused(what: str, method: Callable[..., object], *arguments: object) -> None:
    try:
        method(*arguments)
    except ValueError:
        return
    raise MismatchError(f"{what}; expected a ValueError")


def _check_restore(subject: Subject, start: Buffers) -> None:
    """Checks that `restore` gives the state before the first step, in place, nothing staged."""
    tables = subject.tables
    tables.append_block_ids(0, [[] for _ in tables.block_tables], True)
    append_many = append_many_of(tables)
    if append_many is not None:
        append_many([0], [[[1] for _ in tables.block_tables]], [False])
    tables.restore(subject.start)
    tables.apply_staged_writes()
    outputs = ("slot_mappings", "input_block_tables")
    compare_buffers(
        {name: buffer for name, buffer in start.items() if not name.startswith(outputs)},
        subject.tables,
    )
    compare_addresses(subject.addresses, subject.tables)


def _set_up(tables: Any, workload: Workload, garbage: list[int]) -> None:
    """Brings tables to the state before the first step, with garbage outside of owned blocks."""
    state = tables.snapshot()
    for index, table in enumerate(state.block_tables):
        # A ramp, so that neighbouring columns and rows differ.
        ramp = torch.arange(table.numel(), dtype=torch.int64, device=table.device)
        table.copy_(((ramp * 7919 + garbage[index]) % 2**31).reshape(table.shape))
    tables.restore(state)
    _append_setup(tables, workload)


def _append_setup(tables: Any, workload: Workload) -> None:
    append_each(tables, [copied(append) for append in workload.setup])
    tables.apply_staged_writes()


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
