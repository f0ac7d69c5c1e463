"""The suite that a file of functions is: benchmarks are kinds of workloads of one operation.

This runs where code of users may run: in the process of the suite, and in workers.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, create_model

from bt_bench.base.errors import UsageError
from bt_bench.base.names import Operation
from bt_bench.functions.declared import Benchmark, line_of
from bt_bench.functions.loaded import METHOD, benchmarks_of, load_file
from bt_bench.protocol import PROTOCOL, Suite, Workload, WorkloadParameters, digest_of
from bt_bench.protocol.owners import suite_of
from bt_bench.variants import REFERENCE

if TYPE_CHECKING:
    import torch

    from bt_bench.protocol import Driver, SuiteRef

MAX_SEED = 2**31
_REFUSED = ("torch", "triton", "numpy", "bt_bench", "bt_kernels")


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
        suite: Any = suite_of(self)
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
            self.benchmark, dict(self.inputs), [_contents(step) for step in self.steps]
        )

    def sizes(self) -> Mapping[str, list[int]]:
        """Return the number of elements of each tensor."""
        names = _tensors(self.steps[0])
        return {name: [step[name].numel() for step in self.steps] for name in names}

    def varied(self, rng: np.random.Generator) -> Self:
        """Make the arguments anew, with another seed."""
        suite: Any = suite_of(self)
        seed = int(rng.integers(MAX_SEED))
        return suite.workload(self.benchmark, self.inputs, len(self.steps), seed)  # type: ignore[no-any-return]


class FunctionSuite(Suite):
    """A suite made of the functions in one file; a subclass is made for each file."""

    protocol = PROTOCOL
    operations = (Operation(METHOD, title="Call"),)
    of_file: ClassVar[ModuleType]

    def __init__(self, path: Path, benchmarks: Mapping[str, Benchmark], module: ModuleType) -> None:
        self._path = path
        self.benchmarks = dict(benchmarks)
        self.name = path.stem.lower()
        self.package = path.stem
        lines = (module.__doc__ or "").strip().splitlines()
        self.title = lines[0] if lines else f"Functions of {path.name}"
        self.listed = self._listed()
        self.driving = self._driving()
        self.own_config = self._config()
        self.parameters = tuple(
            _parameters(each, type(self).__module__, is_first=place == 0)
            for place, each in enumerate(benchmarks.values())
        )

    def driver(self) -> type[Driver]:
        """Return the driver of all such suites, as a class of this one."""
        from bt_bench.functions.driver import FunctionDriver

        return FunctionDriver

    @property
    def kernels(self) -> Path:
        """The folder of the file."""
        return self._path.parent

    def _listed(self) -> Mapping[str, str]:
        """Return the functions in the order of the file, references first."""
        ordered = sorted(
            (one for each in self.benchmarks.values() for one in each.implementations.values()),
            key=lambda one: all(one is not each.right for each in self.benchmarks.values()),
        )
        found = {REFERENCE: "the functions whose results are right, on the CPU"}
        for one in ordered:
            if one.timed:
                lines = (one.function.__doc__ or "").strip().splitlines()
                found.setdefault(one.name, lines[0] if lines else "")
        return found

    def _driving(self) -> Mapping[str, str]:
        return {
            name: digest
            for each in self.benchmarks.values()
            for name, digest in each.driving().items()
        }

    def _config(self) -> str:
        """Return a config of every benchmark with every combination of its inputs."""
        cases = [
            {"name": _case_name(name, case), "workload": name, **case}
            for name, each in self.benchmarks.items()
            for case in each.cases
        ]
        document = {"suite": f"./{self._path.name}", "description": self.title, "cases": cases}
        return json.dumps(document, indent=1)

    def conformance(self, seed: int) -> Mapping[str, Workload]:
        """Return the first case of each benchmark."""
        return {
            _case_name(name, each.cases[0]): self.workload(
                name, each.cases[0], each.steps, (seed + 1) % MAX_SEED
            )
            for name, each in self.benchmarks.items()
        }

    def workload(
        self, name: str, inputs: Mapping[str, Any], steps: int, seed: int
    ) -> FunctionWorkload:
        """Make the arguments of a benchmark's steps.

        Raises:
            UsageError: if they cannot be arguments, or do not depend on the seed.
        """
        benchmark = self.benchmarks[name]
        seeds = np.random.SeedSequence(seed).generate_state(steps)
        made = [self._step(benchmark, inputs, int(each)) for each in seeds]
        where = f"{line_of(benchmark.make)}: {name}"
        _refuse_unlike(made, where)
        if digest_of(_contents(made[0])) == digest_of(_contents(made[1])):
            raise UsageError(
                f"{where} makes the same contents for every seed; expected random ones, as by "
                "torch.rand or torch.randint: a result that is remembered would look right"
            )
        kind: type[FunctionWorkload] = type(self).of_file.FunctionWorkload
        return kind(name, dict(inputs), made)

    def _step(
        self, benchmark: Benchmark, inputs: Mapping[str, Any], seed: int
    ) -> Mapping[str, Any]:
        with _seeded(seed):
            made = benchmark.make(**inputs)
        where = f"{line_of(benchmark.make)}: {benchmark.name}"
        if not isinstance(made, Mapping) or not made or not all(isinstance(n, str) for n in made):
            raise UsageError(
                f"{where} returned {type(made).__name__}; expected the arguments by name, as in "
                'return {"x": x, "out": out}'
            )
        return {**inputs, **_checked(made, where)}


def module_of(ref: SuiteRef) -> ModuleType:
    """Load a file of functions as a suite; the module that is returned holds `SUITE`.

    Raises:
        UsageError: if the file cannot be a suite.
        Exception: whatever the file raises.
    """
    path = ref.folder
    assert path is not None
    if not path.stem.isidentifier() or path.stem in sys.stdlib_module_names | set(_REFUSED):
        raise UsageError(
            f"{path}: {path.stem!r} cannot be imported; expected a file with a Python name that no "
            "other module has; rename it"
        )
    name = f"{ref.package}.suite"
    loaded = load_file(path, path.stem)
    module = ModuleType(name)
    module.__file__ = str(path)
    # Classes of a suite are known by their module, and pickled by it.
    own: dict[str, Any] = {"__module__": name}
    workload = type("FunctionWorkload", (FunctionWorkload,), dict(own))
    module.FunctionWorkload = workload  # type: ignore[attr-defined]
    suite = type("FunctionSuite", (FunctionSuite,), own | {"of_file": module})
    module.SUITE = suite(path, benchmarks_of(loaded, path), loaded)  # type: ignore[attr-defined]
    sys.modules[name] = module
    return module


def _parameters(benchmark: Benchmark, module: str, *, is_first: bool) -> type[WorkloadParameters]:
    kind = Literal[benchmark.name]  # type: ignore[name-defined]
    fields: dict[str, Any] = {"workload": (kind, benchmark.name if is_first else ...)}
    for name in benchmark.cases[0]:
        kinds = {type(case[name]) for case in benchmark.cases}
        fields[name] = (float if float in kinds else kinds.pop(), Field(description="an input"))
    about = FunctionParameters.model_fields["steps"].description
    fields["steps"] = (int, Field(default=benchmark.steps, ge=2, le=1000, description=about))
    made: type[WorkloadParameters] = create_model(
        f"{benchmark.name.title()}Parameters",
        __base__=FunctionParameters,
        __module__=module,
        __doc__=benchmark.make.__doc__ or f"The benchmark {benchmark.name}.",
        **fields,
    )
    return made


def _case_name(name: str, case: Mapping[str, Any]) -> str:
    parts = (f"{key}={value}" for key, value in case.items())
    text = "-".join([name, *parts])
    return "".join(letter if letter.isalnum() or letter in "_.=-" else "_" for letter in text)


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


def _contents(step: Mapping[str, Any]) -> dict[str, Any]:
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
