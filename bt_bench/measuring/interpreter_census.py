"""Counts launches where Triton's interpreter runs the kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from bt_bench.arms import Arm, StepInputs
from bt_bench.model import LaunchCensus, LaunchCount, Operation

Counts = Counter[tuple[str, str]]


def count_launches(arm: Arm, steps: Sequence[StepInputs], operation: Operation) -> LaunchCensus:
    """Device operations that each step asks for: Triton launches, and torch operations beside.

    A torch operation counts unless it only makes a view or allocates: on a GPU it would be a
    kernel, a copy or a memset.
    """
    arm.rewind()
    counted = []
    for step in steps:
        arm.stage(step)
        arm.prepare(operation)
        call = arm.bind(operation, step)
        with _counting() as counts:
            call()
        if operation is Operation.STAGE:
            arm.tables.apply_staged_writes()
        counted.append(
            [
                LaunchCount.model_validate({"kind": kind, "name": name, "count": count})
                for (kind, name), count in sorted(counts.items())
            ]
        )
    return LaunchCensus(counted_by="interpreter", steps=counted)


@contextmanager
def _counting() -> Iterator[Counts]:
    from triton.runtime.interpreter import InterpretedFunction

    counts: Counts = Counter()
    torch_operations = _TorchOperations(counts)
    run = InterpretedFunction.run

    def counted_run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if not warmup:
            counts["kernel", self.fn.__name__] += 1
        # The interpreter itself works through torch operations, which are not the step's.
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


class _TorchOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Counts torch operations that would run on a device."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.paused = 0
        self._counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.paused and _runs_on_device(func):
            self._counts["torch_op", func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def _runs_on_device(func: Any) -> bool:
    name = func.overloadpacket.__name__
    if name.startswith(("empty", "new_empty")) or name in ("detach", "set_", "lift_fresh"):
        return False
    # A view's result aliases its argument without writing to it.
    return not any(
        result.alias_info is not None and not result.alias_info.is_write
        for result in func._schema.returns
    )
