"""The suite that a file of functions is: benchmarks are kinds of workloads of one operation.

This runs where code of users may run: in the process of the suite, and in workers.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, create_model

from bt_bench.base import one_line
from bt_bench.base.docstrings import docstring_of
from bt_bench.base.errors import UsageError
from bt_bench.base.names import Operation
from bt_bench.functions.declared import Benchmark, Implementation
from bt_bench.functions.loaded import METHOD, benchmarks_of, load_file
from bt_bench.functions.workload import MAX_SEED, FunctionParameters, FunctionWorkload, steps_of
from bt_bench.protocol import PROTOCOL, Suite, Workload, WorkloadParameters
from bt_bench.variants import REFERENCE

if TYPE_CHECKING:
    from bt_bench.protocol import Driver, SuiteRef

_LONGEST_NAME = 200  # of a case, as configs have it
_REFUSED = ("torch", "triton", "numpy", "bt_bench", "bt_kernels")


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
        lines = (docstring_of(module) or "").strip().splitlines()
        self.title = one_line(lines[0]) if lines else f"Functions of {path.name}"
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
            lines = (docstring_of(one.function) or "").strip().splitlines()
            found.setdefault(one.name, lines[0] if lines else f"function {_name(one)}")
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
        """Make the arguments of a benchmark's steps; see `steps_of`."""
        kind: type[FunctionWorkload] = type(self).of_file.FunctionWorkload
        return kind(name, dict(inputs), steps_of(self.benchmarks[name], inputs, steps, seed))


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
        __doc__=docstring_of(benchmark.make) or f"The benchmark {benchmark.name}.",
        **fields,
    )
    return made


def _name(one: Implementation) -> str:
    return str(getattr(one.function, "__name__", type(one.function).__name__))


def _case_name(name: str, case: Mapping[str, Any]) -> str:
    """Return a name for a case by its inputs, of characters that configs allow.

    If characters had to be replaced, or left out, a digest keeps it apart from others.
    """
    text = "-".join([name, *(f"{key}={value}" for key, value in case.items())])
    plain = re.sub(r"[^A-Za-z0-9_.=-]", "_", text)
    if plain == text and len(plain) <= _LONGEST_NAME:
        return plain
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[: _LONGEST_NAME - 9]}-{digest}"
