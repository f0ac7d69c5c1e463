"""A check of block tables: fresh inputs, poisoned outputs, every step compared as a whole.

Before the first step, the source tables are filled with garbage, and all block ids are replaced by
others, large ones included. Before each step, the outputs are poisoned. After each step, the source
tables, input tables, slot mappings and block counts are compared whole, as are the results of the
calls and the inputs. After the window, dummy outputs, a refused append and `restore` are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from bt_bench.base.names import Path
from bt_bench.protocol import Guard, MismatchError, Through, Trial
from bt_bench.suites.block_tables import operations
from bt_bench.suites.block_tables.calls import bind
from bt_bench.suites.block_tables.checking.buffers import (
    COMPARED,
    CUSTOM_OUTPUTS,
    Buffers,
    addresses_of,
    buffers_of,
    compare_addresses,
    compare_appends,
    compare_buffers,
    compare_dummies,
    compare_inputs,
    compare_results,
    copies_on,
    fill_tables,
    poison,
    spoiled_appends,
    tensors_of,
)
from bt_bench.suites.block_tables.checking.differences import (
    Differences,
    as_defined,
    as_returned,
)
from bt_bench.suites.block_tables.checking.staging_ways import StagingWay, staging_way
from bt_bench.suites.block_tables.inputs import (
    CustomOutputs,
    StepInputs,
    append_each,
    append_many_of,
    copied,
    outputs_on,
    step_on,
)
from bt_bench.suites.block_tables.vllm.differences import OUT_PTRS, REFUSALS, differences_of
from bt_bench.suites.block_tables.workloads import Workload
from bt_bench.suites.block_tables.workloads.relabel import relabelling

SPARE_POSITIONS = 5  # garbage after the positions, which may be a longer buffer than T
DUMMY_POISON = -1000  # value of outputs before they are emptied
SPARE_OUTPUTS = 2  # rows and slots that no step reads, in buffers that the caller gives


@dataclass
class TablesUnderCheck:
    """Tables under check.

    Args:
        tables: a variant's tables.
        differences: the variant's own definitions, which its check applies.
        tensors: the tensors that calls write, as found at set-up.
        outputs: the caller's buffers, where the workload has them.
        addresses: the addresses of the outputs at set-up; empty: they are not compared.
        start: snapshot from before the first step.
    """

    tables: Any
    differences: Differences
    tensors: Buffers
    outputs: CustomOutputs | None = None
    addresses: dict[str, int] = field(default_factory=dict)
    start: Any = None


@dataclass(frozen=True)
class Expected:
    """The required contents of all buffers after a step whose outputs held the poison before."""

    buffers: Buffers
    poison: int


class TableTrial(Trial):
    """See the base class.

    Args:
        reference: class of the reference.
        workload: the workload under check.
        device: where the variants live.
        rng: source of garbage, poison and ids; `None`: the inputs are the timed ones.
        paths: not used, since the calls of each path perform the same whole step.
    """

    def __init__(
        self,
        reference: type[Any],
        workload: Workload,
        device: torch.device,
        rng: np.random.Generator | None,
        paths: Sequence[Path],
    ) -> None:
        self._rng = rng
        self._device = device
        self._workload = workload if rng is None else relabel(workload, rng)
        layout = workload.layout
        self._reference = reference(layout, "cpu")
        cpu = torch.device("cpu")
        self._garbage: list[int] = []
        if rng is not None:
            self._garbage = rng.integers(0, 2**31, layout.num_groups).tolist()
        _set_up(self._reference, self._workload, self._garbage)
        self._outputs = outputs_on(cpu, self._workload, 0 if rng is None else SPARE_OUTPUTS)
        self._start = copies_on(device, buffers_of(self._reference))

    @property
    def num_steps(self) -> int:
        """See the base class."""
        return len(self._workload.steps)

    def begin(self, variant: type[Any], guard: Guard) -> TablesUnderCheck:
        """See the base class."""
        tables = variant(self._workload.layout, self._device)
        with guard(tables):
            _set_up(tables, self._workload, self._garbage)
        return TablesUnderCheck(
            tables,
            differences_of(variant),
            tensors_of(tables),
            outputs_on(self._device, self._workload, SPARE_OUTPUTS),
            addresses_of(tables),
            tables.snapshot(),
        )

    def resume(self, driver: Any) -> TablesUnderCheck:
        """See the base class."""
        tables = driver.tables
        return TablesUnderCheck(tables, differences_of(type(tables)), tensors_of(tables))

    def expect(self, index: int) -> Expected:
        """See the base class."""
        value = -1000 - index if self._rng is None else int(self._rng.integers(-(2**31), -1))
        poison(self._reference, value, self._outputs)
        given = self._workload.steps[index]
        step = step_on(torch.device("cpu"), self._workload, given, outputs=self._outputs)
        append_each(self._reference, step.appends)  # all other ways to stage must be equivalent
        bind(self._reference, operations.STEP, step)()
        found = buffers_of(self._reference, self._outputs)
        return Expected(copies_on(self._device, found), value)

    def way(self, subject: TablesUnderCheck, index: int) -> str:
        """See the base class."""
        return self._way(subject, index).title

    def _way(self, subject: TablesUnderCheck, index: int) -> StagingWay:
        # On the timed inputs, steps are also staged as they were timed.
        return staging_way(subject.tables, 0 if self._rng is None else index)

    def step(
        self,
        subject: TablesUnderCheck,
        path: Path,
        index: int,
        expected: Expected,
        through: Through,
        guard: Guard,
        inputs: StepInputs | None = None,
    ) -> None:
        """See the base class."""
        given = self._workload.steps[index]
        # Each variant gets inputs of its own: none can spoil another's.
        step = inputs or step_on(
            self._device,
            self._workload,
            given,
            spare=SPARE_POSITIONS,
            outputs=_given_outputs(subject, index),
        )
        tables = subject.tables
        poison(tables, expected.poison, step.outputs)
        with guard(tables, step):
            if self._rng is None:
                through(tables, operations.STAGE, bind(tables, operations.STAGE, step))
            else:
                self._way(subject, index).stage(tables, step)
            compare_appends(given, step)
            with spoiled_appends(step):
                results = run(tables, path, step, through)
        written = slice(given.num_tokens, len(step.positions))
        differences, poisoned = subject.differences, expected.poison
        wanted = as_defined(
            differences, tables, expected.buffers, poisoned, given.num_reqs, written
        )
        compare_buffers(wanted, tables, poisoned, step.outputs, subject.tensors)
        compare_results(results, tables, as_returned(differences, step))
        compare_inputs(given, step)
        if subject.addresses:
            compare_addresses(subject.addresses, tables)

    def refill(
        self, subject: TablesUnderCheck, path: Path, expected: Expected, result: object
    ) -> None:
        """See the base class."""
        if isinstance(result, torch.Tensor):
            result.fill_(expected.poison)
        elif isinstance(result, (tuple, list)):
            for each in result:
                self.refill(subject, path, expected, each)

    def further(self) -> Iterator[tuple[str, Callable[[TablesUnderCheck, Guard], None]]]:
        """See the base class: dummy outputs, a refused append, and `restore`."""
        layout = self._workload.layout
        most_reqs, most_tokens = layout.max_num_reqs, layout.max_num_batched_tokens
        # The caller may fill the rows of the first call; the second call must empty them.
        for sizes in ((most_reqs // 2, most_tokens // 2), (0, 0)):
            poison(self._reference, DUMMY_POISON)
            self._reference.get_dummy_block_tables(sizes[0])
            self._reference.get_dummy_slot_mappings(sizes[1])
            expected = copies_on(self._device, buffers_of(self._reference))
            yield "dummy outputs", partial(_check_dummies, expected, *sizes)
        yield "refusal", partial(_check_refusal, self._workload)
        yield "restore", partial(_check_restore, self._start, self._workload, self._device)

    def compared(self, subject: TablesUnderCheck) -> Sequence[str]:
        """See the base class."""
        return COMPARED if subject.outputs is None else [*COMPARED, CUSTOM_OUTPUTS]


def run(tables: Any, path: Path, step: StepInputs, through: Through) -> list[tuple[str, Any]]:
    """Make the calls of a path on a staged step; return each operation with its result."""
    return [
        (operation, through(tables, operation, bind(tables, operation, step)))
        for operation in map(operations.BY_NAME.__getitem__, path)
    ]


def _given_outputs(subject: TablesUnderCheck, index: int) -> CustomOutputs | None:
    """Return the caller's buffers for a step; odd steps do not pass their addresses."""
    outputs = subject.outputs
    if outputs is None or index % 2 == 0 or OUT_PTRS in subject.differences:
        return outputs
    return replace(outputs, addresses=None)


def _check_dummies(
    expected: Buffers, num_reqs: int, num_tokens: int, subject: TablesUnderCheck, guard: Guard
) -> None:
    """Check that dummy outputs, if supported, are empty and at the persistent addresses."""
    tables = subject.tables
    if not hasattr(tables, "get_dummy_block_tables"):
        return
    poison(tables, DUMMY_POISON)
    with guard(tables):
        views = tables.get_dummy_block_tables(num_reqs)
        slots = tables.get_dummy_slot_mappings(num_tokens)
    wanted = as_defined(subject.differences, tables, expected, DUMMY_POISON, num_reqs=0)
    compare_buffers(wanted, tables, DUMMY_POISON)
    compare_dummies(views, slots, tables, num_reqs, num_tokens)
    compare_addresses(subject.addresses, tables)


def _check_refusal(workload: Workload, subject: TablesUnderCheck, _guard: Guard) -> None:
    """Check that a row wider than its table is refused, and that nothing changes.

    Other rows staged by the same call must not change either.
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


def _check_restore(
    start: Buffers,
    workload: Workload,
    device: torch.device,
    subject: TablesUnderCheck,
    _guard: Guard,
) -> None:
    """Check that `restore` brings back the state before the first step, in place, nothing staged.

    It must do so in other tables of the variant, too: further instances are set up that way.
    """
    tables = subject.tables
    tables.append_block_ids(0, [[] for _ in tables.block_tables], True)
    append_many = append_many_of(tables)
    if append_many is not None:
        append_many([0], [[[1] for _ in tables.block_tables]], [False])
    tables.restore(subject.start)
    tables.apply_staged_writes()
    outputs = ("slot_mappings", "input_block_tables")
    of_rows = {name: buffer for name, buffer in start.items() if not name.startswith(outputs)}
    compare_buffers(of_rows, tables)
    compare_addresses(subject.addresses, tables)
    other = type(tables)(workload.layout, device)
    other.restore(subject.start)
    compare_buffers(of_rows, other)


def _set_up(tables: Any, workload: Workload, garbage: list[int]) -> None:
    """Bring tables to the state before the first step, with garbage outside of owned blocks.

    Without `garbage`, nothing is put there.
    """
    if garbage:
        fill_tables(tables, garbage)
    append_each(tables, [copied(append) for append in workload.setup])
    tables.apply_staged_writes()


def relabel(workload: Workload, rng: np.random.Generator) -> Workload:
    """Return the workload with other block ids, by a random bijection of `[0, 2**31)`."""
    relabelled = relabelling(rng)
    steps = [replace(step, appends=relabelled(step.appends)) for step in workload.steps]
    return replace(workload, setup=relabelled(workload.setup), steps=tuple(steps))
