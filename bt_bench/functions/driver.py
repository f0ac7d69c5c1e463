"""The driver of functions: it owns the tensors that they are called with, and refills them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch

from bt_bench.base.errors import UsageError
from bt_bench.base.names import Operation
from bt_bench.functions.declared import Benchmark, Implementation, line_of
from bt_bench.functions.workload import FunctionWorkload, contents_of, suite_behind
from bt_bench.protocol import Driver, MismatchError
from bt_bench.worker.checking.comparing import in_parts

RESULT = "result"


class FunctionDriver(Driver):
    """Calls of one variant's function of a benchmark.

    Each instance has tensors of its own. Before each call, `prepare` copies the contents of the
    step into them, which is not timed: so a function finds other contents at the same addresses in
    each step, and may work in place. Tensors that the benchmark left uninitialised are outputs.
    All others are compared as state: what the reference leaves in them is right.

    Args:
        variant: class with a static method of the benchmark's name.
        workload: arguments of every step.
        device: where the tensors are.
    """

    def __init__(
        self, variant: type[Any], workload: FunctionWorkload, device: torch.device
    ) -> None:
        benchmark: Benchmark = suite_behind(workload).benchmarks[workload.benchmark]
        self.variant = variant()
        self._workload = workload
        first = workload.steps[0]
        tensors = {name: t for name, t in first.items() if isinstance(t, torch.Tensor)}
        self._own = {name: t.to(device, copy=True) for name, t in tensors.items()}
        self._outputs = {name for name, t in tensors.items() if _is_uninitialised(t)}
        results, changed = _results_of(benchmark, workload)
        self._results = {name: torch.empty_like(t, device=device) for name, t in results.items()}
        self._kept: list[object] = [None]
        self._function = getattr(self.variant, workload.benchmark)
        self._names = Implementation(workload.benchmark, self._function).parameters(list(first))
        # What the reference leaves alone must stay as it is.
        compared = {**dict.fromkeys(self._outputs | changed), **self._results}
        _refuse_other_names(benchmark, list(compared))
        self.tolerances = {  # type: ignore[misc]  # of this benchmark
            name if name in self._outputs or name in self._results else _argument(name): tolerance
            for name in compared
            if any(tolerance := benchmark.tolerance_of(name))
        }

    @classmethod
    def inputs_on(cls, device: torch.device, workload: FunctionWorkload) -> list[Mapping[str, Any]]:
        """Return the arguments of each step, to be copied from."""
        return [
            {n: v.to(device, copy=True) if isinstance(v, torch.Tensor) else v for n, v in s.items()}
            for s in workload.steps
        ]

    def call(self, operation: Operation, step: Mapping[str, Any]) -> Callable[[], object]:
        """Return the call of the function, with the driver's own tensors."""
        own = self._own
        # No function sees the step's own tensors and lists, which all arms share.
        arguments = [own[n] if n in own else deepcopy(step[n]) for n in self._names]
        self._kept[0] = None
        call = partial(self._function, *arguments)
        return partial(_keep, self._kept, call) if self._results else call

    def prepare(self, operation: Operation, step: Mapping[str, Any]) -> None:
        """Copy the contents of a step into the tensors, except outputs."""
        for name, tensor in self._own.items():
            if name not in self._outputs:
                tensor.copy_(step[name])

    def finish(self, operation: Operation) -> None:
        """Copy what the function has returned to where it is compared.

        Raises:
            MismatchError: if it is not what the reference returns.
        """
        if not self._results:
            return
        found = _as_list(self._kept[0])
        if len(found) != len(self._results):
            raise MismatchError(
                f"the function returned {len(found)} tensors; expected {len(self._results)}, as "
                "the reference does"
            )
        for value, (name, buffer) in zip(found, self._results.items(), strict=True):
            if type(value) is not torch.Tensor:
                raise MismatchError(
                    f"{name} is a {type(value).__name__}; expected a plain torch.Tensor"
                )
            if (value.shape, value.dtype) != (buffer.shape, buffer.dtype):
                raise MismatchError(
                    f"{name} has shape {tuple(value.shape)} and dtype {value.dtype}; expected "
                    f"{tuple(buffer.shape)} and {buffer.dtype}"
                )
            if value.device != buffer.device:
                raise MismatchError(f"{name} is on {value.device}; expected {buffer.device}")
            buffer.copy_(value.detach())

    def rewind(self) -> None:
        """Restore the contents of the first step."""
        self._kept[0] = None
        for name, tensor in self._own.items():
            tensor.copy_(self._workload.steps[0][name])

    def may_be_empty(self, operation: Operation, step: Mapping[str, Any]) -> bool:
        """Return whether no tensor has an element to write."""
        return not may_change({**self._own, **self._results})

    @classmethod
    def with_other_contents(
        cls, workload: FunctionWorkload, rng: np.random.Generator
    ) -> FunctionWorkload:
        """Return the workload with other contents: `prepare` can copy any into the tensors."""
        return workload.varied(rng)

    def take(
        self, workload: FunctionWorkload, steps: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any]]:
        """Return the arguments of a workload of the same sizes."""
        device = next(iter({**self._own, **self._results}.values())).device
        return self.inputs_on(device, workload)

    def outputs(self) -> Mapping[str, torch.Tensor]:
        """Return the tensors that calls write afresh, and copies of what they return."""
        return {name: self._own[name] for name in self._outputs} | self._results

    def state(self) -> Mapping[str, torch.Tensor]:
        """Return all other tensors: none may be changed, unless the reference changes it."""
        return {_argument(n): t for n, t in self._own.items() if n not in self._outputs}


def may_change(values: Mapping[str, Any]) -> bool:
    """Return whether any of the values is a tensor with an element."""
    return any(isinstance(each, torch.Tensor) and each.numel() for each in values.values())


def _argument(name: str) -> str:
    return f"argument {name}"


def _keep(kept: list[object], call: Callable[[], object]) -> None:
    kept[0] = call()


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, tuple | list) else [] if value is None else [value]


def _shapes(values: list[object]) -> str:
    return ", ".join(
        f"{str(each.dtype).removeprefix('torch.')}{list(each.shape)}"
        if isinstance(each, torch.Tensor)
        else type(each).__name__
        for each in values
    )


def _is_uninitialised(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has what torch fills uninitialised memory with; see `_seeded`."""
    if not tensor.numel() or tensor.dtype is torch.bool:
        return False
    tensor = in_parts(tensor)
    if tensor.dtype.is_floating_point:
        return bool(torch.isnan(tensor).all())
    return bool((tensor == torch.iinfo(tensor.dtype).max).all())


def _refuse_other_names(benchmark: Benchmark, names: Sequence[str]) -> None:
    """Refuse tolerances for what is not compared, or must stay as it is.

    Raises:
        UsageError: naming the first one.
    """
    for name in benchmark.tolerance if isinstance(benchmark.tolerance, Mapping) else ():
        if name not in names:
            raise UsageError(
                f"{line_of(benchmark.make)}: {benchmark.name} has a tolerance for {name!r}; "
                f"expected one for what the reference returns or changes: {', '.join(names)}"
            )


def _results_of(
    benchmark: Benchmark, workload: FunctionWorkload
) -> tuple[dict[str, torch.Tensor], set[str]]:
    """Return what the reference returns, by name, and the names of the arguments it changes.

    Of what it returns, shapes and dtypes count, those of the first step.

    Raises:
        UsageError: if it returns anything but tensors.
    """
    key = repr(sorted(workload.inputs.items()))
    known: dict[str, tuple[dict[str, torch.Tensor], set[str]]] = benchmark.results
    if key in known:
        return known[key]
    assert benchmark.right is not None
    step, *others = FunctionDriver.inputs_on(torch.device("cpu"), workload)
    names = benchmark.right.parameters(list(step))
    found, *later = (
        _as_list(benchmark.right.function(*(each[name] for name in names)))
        for each in (step, *others)
    )
    changed = {
        name
        for before, after in zip(workload.steps, (step, *others), strict=True)
        for name, contents in contents_of(before).items()
        if contents_of(after)[name] != contents
    }
    if not found and may_change(step) and not changed:
        raise UsageError(
            f"{line_of(benchmark.right.function)}: the reference of {benchmark.name} returns "
            "nothing and changes none of its arguments; expected results to compare: return them, "
            "or write them to an argument"
        )
    where = f"{line_of(benchmark.right.function)}: the reference {benchmark.right.name}"
    for value in found:
        if type(value) is not torch.Tensor or value.layout is not torch.strided:
            kind = f"{getattr(value, 'layout', '')} {type(value).__name__}".strip()
            raise UsageError(
                f"{where} returned a {kind}; expected plain tensors, or None if it writes into its "
                "arguments"
            )
    for other in later:
        if (one := _shapes(other)) != (first := _shapes(found)):
            raise UsageError(
                f"{where} returned {one} for one seed and {first} for another; expected the same "
                "shapes and dtypes whatever the contents, as by padding to the most there can be"
            )
    numbers = range(len(found))
    # A result that is one of the arguments is compared there.
    own = {value.untyped_storage().data_ptr() for value in step.values() if hasattr(value, "dtype")}
    fresh = {
        RESULT if len(found) == 1 else f"{RESULT}{number}": value.detach()
        for number, value in zip(numbers, found, strict=True)
        if isinstance(value, torch.Tensor)
    }
    if all(value.untyped_storage().data_ptr() in own for value in fresh.values()):
        fresh = {}
    shapes = {name: torch.empty_like(value, device="meta") for name, value in fresh.items()}
    known[key] = shapes, changed
    return known[key]
