"""Workloads of functions: the arguments of every step, made anew from a seed."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field

from bt_bench.base.errors import UsageError
from bt_bench.functions.declared import Benchmark, line_of
from bt_bench.protocol import Workload, WorkloadParameters, digest_of

if TYPE_CHECKING:
    import torch

MAX_SEED = 2**31


def suite_behind(value: object) -> Any:
    """Return the `FunctionSuite` whose file an object's class was made for.

    Its classes exist only where the file is loaded, whatever `suite_of` returns in this process.
    """
    return sys.modules[type(value).__module__].SUITE


class FunctionParameters(WorkloadParameters):
    """Parameters of the cases of a benchmark; subclasses add its inputs as fields."""

    steps: int = Field(ge=2, le=1000, description="calls with different contents")
    seed: int = Field(default=0, ge=0, lt=MAX_SEED, description="seed of the contents")

    @property
    def features(self) -> frozenset[str]:
        """The benchmark: variants that have no function for it are not run."""
        return frozenset({self.workload})

    def build(self) -> Workload:
        """Make the arguments of every step.

        Raises:
            UsageError: if they cannot be arguments, or do not depend on the seed.
        """
        suite = suite_behind(self)
        values = self.model_dump(exclude={"workload", "steps", "seed"})
        return suite.workload(self.workload, values, self.steps, self.seed)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class FunctionWorkload(Workload):
    """The arguments of every step, on the CPU.

    Args:
        benchmark: its name.
        inputs: the inputs that the arguments were made from.
        steps: arguments by name; of tensors, shapes and dtypes are the same in all steps.
    """

    benchmark: str
    inputs: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]

    @property
    def features(self) -> frozenset[str]:
        """See `FunctionParameters`."""
        return frozenset({self.benchmark})

    def digest(self) -> str:
        """Return a digest of all contents."""
        return digest_of(
            self.benchmark, dict(self.inputs), [contents_of(step) for step in self.steps]
        )

    def sizes(self) -> Mapping[str, list[int]]:
        """Return the number of elements of each tensor."""
        names = _tensors(self.steps[0])
        return {name: [step[name].numel() for step in self.steps] for name in names}

    def varied(self, rng: np.random.Generator) -> Self:
        """Make the arguments anew, with another seed."""
        suite = suite_behind(self)
        seed = int(rng.integers(MAX_SEED))
        return suite.workload(self.benchmark, self.inputs, len(self.steps), seed)  # type: ignore[no-any-return]


_INSTEAD = "expected bytes, of dtype torch.uint8, which the functions view as numbers of 4 bits"


def steps_of(
    benchmark: Benchmark, inputs: Mapping[str, Any], steps: int, seed: int
) -> list[Mapping[str, Any]]:
    """Make the arguments of a benchmark's steps, each with a seed of its own.

    Raises:
        UsageError: if they cannot be arguments, or do not depend on the seed.
    """
    seeds = np.random.SeedSequence(seed).generate_state(steps)
    made = [_step(benchmark, inputs, int(each)) for each in seeds]
    where = f"{line_of(benchmark.make)}: {benchmark.name}"
    _refuse_unlike(made, where)
    if digest_of(contents_of(made[0])) == digest_of(contents_of(made[1])):
        raise UsageError(
            f"{where} makes the same contents for every seed; expected random ones, as by "
            "torch.rand or torch.randint: a result that is remembered would look right"
        )
    return made


def _step(benchmark: Benchmark, inputs: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    where = f"{line_of(benchmark.make)}: {benchmark.name}"
    with _seeded(seed):
        try:
            made = benchmark.make(**inputs)
        except NotImplementedError as error:
            if "fill_empty_deterministic_" not in str(error):
                raise
            raise UsageError(
                f"{where} leaves a tensor uninitialised that torch cannot fill ({error}); "
                f"{_INSTEAD}"
            ) from None
    if not isinstance(made, Mapping) or not made or not all(isinstance(n, str) for n in made):
        raise UsageError(
            f"{where} returned {type(made).__name__}; expected the arguments by name, as in "
            'return {"x": x, "out": out}'
        )
    return {**inputs, **_checked(made, where)}


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed all usual generators, and let torch fill uninitialised memory, until the block ends."""
    import torch

    states = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    switch: Any = torch.utils.deterministic  # untyped in torch
    fills = switch.fill_uninitialized_memory
    was, warns = (
        torch.are_deterministic_algorithms_enabled(),
        (torch.is_deterministic_algorithms_warn_only_enabled()),
    )
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    switch.fill_uninitialized_memory = True
    try:
        yield
    finally:
        switch.fill_uninitialized_memory = fills
        torch.use_deterministic_algorithms(was, warn_only=warns)
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.random.set_rng_state(states[2])


def _checked(made: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return arguments whose tensors can be copied to any device as they are.

    Raises:
        UsageError: for any that cannot.
    """
    import torch

    found: dict[str, Any] = {}
    for name, value in made.items():
        if not isinstance(value, torch.Tensor):
            try:
                digest_of(value)
                if isinstance(value, np.ndarray):
                    raise TypeError
            except TypeError:
                raise UsageError(
                    f"{where} makes {name}, a {type(value).__name__}; expected a tensor, or plain "
                    "values: numbers, text, and lists or mappings of these"
                ) from None
        elif type(value) is not torch.Tensor or value.layout is not torch.strided:
            raise UsageError(
                f"{where} makes {name}, a {type(value).__name__} of layout {value.layout}; "
                "expected a plain torch.Tensor"
            )
        elif value.dtype is torch.float4_e2m1fn_x2:  # torch cannot pickle it
            raise UsageError(f"{where} makes {name} of dtype {value.dtype}; {_INSTEAD}")
        elif value.device.type != "cpu":
            raise UsageError(
                f"{where} makes {name} on {value.device}; expected it on the CPU: bt-bench copies "
                "it to the device that it measures on"
            )
        elif value.detach().clone().stride() != value.stride():
            raise UsageError(
                f"{where} makes {name} with shape {tuple(value.shape)} and strides "
                f"{value.stride()}, a part of a larger tensor; expected a tensor of its own, as "
                "by .contiguous()"
            )
        else:
            value = value.detach()
        found[name] = value
    return found


def _refuse_unlike(made: Sequence[Mapping[str, Any]], where: str) -> None:
    first = {n: (t.shape, t.dtype, t.stride()) for n, t in _tensors(made[0]).items()}
    for step in made[1:]:
        other = {n: (t.shape, t.dtype, t.stride()) for n, t in _tensors(step).items()}
        if other != first or step.keys() != made[0].keys():
            differing = sorted(n for n in {*first, *other} if first.get(n) != other.get(n))
            raise UsageError(
                f"{where} makes {', '.join(differing) or 'arguments'} of different names, shapes "
                "or dtypes for different seeds; expected contents alone to depend on the seed"
            )


def _tensors(step: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    import torch

    return {name: value for name, value in step.items() if isinstance(value, torch.Tensor)}


def contents_of(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as data that `digest_of` knows: numpy has not all dtypes of torch."""
    tensors = _tensors(step)
    return {
        name: [str(value.dtype), list(value.shape), _digest(value)] if name in tensors else value
        for name, value in step.items()
    }


def _digest(tensor: torch.Tensor) -> str:
    import torch

    flat = tensor.contiguous().reshape(-1)
    data: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
    return hashlib.sha256(data).hexdigest()
