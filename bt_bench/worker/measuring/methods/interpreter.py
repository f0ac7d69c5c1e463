"""Launch counts where Triton's interpreter runs the kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch

from bt_bench.base.names import Operation
from bt_bench.protocol import Workload
from bt_bench.results import LaunchCensus, LaunchCount
from bt_bench.worker.machine.torch_operations import TorchOperations
from bt_bench.worker.tasks.arm import Arm, inputs_on

Counts = Counter[tuple[str, str]]  # by kind and name

REPLAYS = 3
"""Enough for all host buffers, which are used in rotation, to reach their final size."""


def count_case(
    variants: Mapping[str, type[Any]], workload: Workload, operations: Sequence[Operation]
) -> dict[tuple[str, Operation], LaunchCensus]:
    """Count the launches of variants in each step of a workload, by name and operation.

    Launches that happen only while an arm's buffers grow belong to no step: the last of several
    replays counts.

    Raises:
        ArmFailedError: when a variant raises.
    """
    cpu = torch.device("cpu")
    steps = inputs_on(cpu, workload)
    counted = {}
    for name, variant in variants.items():
        for operation in operations:
            arm = Arm(name, variant, workload, cpu)
            with arm.guarded():
                for _ in range(REPLAYS):
                    counted[name, operation] = count_launches(arm, steps, operation)
    return counted


def count_launches(arm: Arm, steps: Sequence[Any], operation: Operation) -> LaunchCensus:
    """Count the device operations of each step: Triton launches and torch operations."""
    arm.rewind()
    counted = []
    for step in steps:
        call = arm.ready(operation, step)
        with _counting() as counts:
            call()
        arm.finish(operation)
        counted.append(counts)
    return launch_census("interpreter", counted)


def launch_census(counted_by: Literal["cupti", "interpreter"], steps: list[Counts]) -> LaunchCensus:
    """Return a census of the launches counted in each step."""
    launches = [
        [
            LaunchCount.model_validate({"kind": kind, "name": name, "count": count})
            for (kind, name), count in sorted(counts.items())
        ]
        for counts in steps
    ]
    return LaunchCensus(counted_by=counted_by, steps=launches)


@contextmanager
def _counting() -> Iterator[Counts]:
    from triton.runtime.interpreter import InterpretedFunction

    counts: Counts = Counter()
    run = InterpretedFunction.run

    def count_operation(name: str, _args: tuple[Any, ...]) -> None:
        counts["torch_op", name] += 1

    torch_operations = TorchOperations(count_operation)

    def counted_run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if not warmup:
            counts["kernel", self.fn.__name__] += 1
        # The interpreter itself uses torch operations, which do not belong to the step.
        torch_operations.paused += 1
        try:
            return run(self, *args, grid=grid, warmup=warmup, **kwargs)
        finally:
            torch_operations.paused -= 1

    InterpretedFunction.run = counted_run
    try:
        with torch_operations:
            yield counts
    finally:
        InterpretedFunction.run = run
