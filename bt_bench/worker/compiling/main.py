"""The compiling process: it runs a config's cases with a driver that launches nothing."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bt_bench.analysis.code.ptxas import read_version
from bt_bench.base.errors import BtBenchError, UsageError
from bt_bench.base.names import DEFAULT_SUITE
from bt_bench.config import CaseSpec
from bt_bench.protocol import (
    Operation,
    Workload,
    build_workload,
    driver_of,
    load_suite,
    loaded_files,
    run_suites_here,
)
from bt_bench.results import (
    CensusCase,
    Kernel,
    OperationCensus,
    StaticCensus,
    Toolchain,
    VariantCensus,
)
from bt_bench.variants import (
    VariantEntry,
    add_variants_path,
    encodable,
    kernels_folder,
    load_apart,
    local_imports,
    modules_of,
    traceback_of,
)
from bt_bench.worker.compiling.census import REQUEST_NAME, CensusAnswer, CensusRequest
from bt_bench.worker.compiling.driver import AheadDriver
from bt_bench.worker.compiling.host_code import ImportWatch, digest_of
from bt_bench.worker.compiling.machine_code import Disassembler
from bt_bench.worker.compiling.recorder import BinaryRecorder, LaunchWindow
from bt_bench.worker.compiling.targets import capability_of
from bt_bench.worker.isolation.call_stack import with_room
from bt_bench.worker.isolation.fence import Fence
from bt_bench.worker.isolation.located import place_of, summary_of
from bt_bench.worker.isolation.state_watch import TamperedError, ToolWatch
from bt_bench.worker.machine import activity
from bt_bench.worker.tasks.arm import Arm, inputs_on, lacking
from bt_bench.worker.tasks.failures import ArmFailedError, on_failure, refuse_full_disk

_CPU = torch.device("cpu")


def main(folder: Path) -> None:
    """Serve the request in a folder, print the answer, and exit.

    Exit by `os._exit`, which skips any exit handlers that variants have registered. Programs that
    variants start do not inherit the answer's file descriptor.
    """
    answers = os.dup(1)  # for the answer alone; not inherited by subprocesses
    os.dup2(2, 1)  # other output goes to stderr
    run_suites_here()
    request: CensusRequest = pickle.loads((folder / REQUEST_NAME).read_bytes())
    seen: dict[str, None] = {}
    on_failure(lambda error: seen.setdefault(traceback_of(error)))
    try:
        compiler = Compiler(request)
        answer = CensusAnswer(census=with_room(compiler.census), files=compiler.files)
    except BtBenchError as error:
        if error.__cause__ is not None:
            seen.setdefault(traceback_of(error.__cause__))
        answer = CensusAnswer(refusal=encodable(str(error)))
    except Exception as error:
        answer = CensusAnswer(defect=traceback_of(error))
    answer.tracebacks = list(seen)
    with os.fdopen(answers, "w", encoding="utf-8") as file:
        file.write(f"{answer.model_dump_json()}\n")
    sys.stderr.flush()
    os._exit(0)


@dataclass(frozen=True)
class _Case:
    """A case with its workload and inputs."""

    spec: CaseSpec
    workload: Workload
    steps: Sequence[Any]


class Compiler:
    """A compiler of all cases; it replaces Triton's driver of this process by its own.

    Args:
        request: the variants, cases, operations and targets to compile.

    Attributes:
        files: paths of the modules that each variant uses, by the variant's name.
    """

    def __init__(self, request: CensusRequest) -> None:
        from triton import knobs
        from triton.runtime import driver

        self.files: dict[str, list[str]] = {}
        capabilities = [capability_of(target) for target in request.targets]
        self._request = request
        self._disassembler = Disassembler() if request.code else None
        self._recorder = BinaryRecorder(self._disassembler)
        self._driver = AheadDriver(capabilities, self._recorder.on_load, self._recorder.on_launch)
        self._watch = ImportWatch()
        # Makes `torch.empty` fill its memory, which makes contents of memory comparable.
        torch.set_deterministic_debug_mode("warn")
        driver.set_active(self._driver)
        knobs.compilation.listener = self._recorder.on_compiled

    def census(self) -> StaticCensus:
        """Take the census of all variants.

        Raises:
            UsageError: for a workload that cannot be built, and for a variant that does not
                import, uses another tree, or changes tools that all share.
        """
        suite = load_suite(self._request.suite)
        driver_of(suite)  # load the whole suite before any code of a variant
        cases = [_built(spec) for spec in self._request.cases]
        add_variants_path()
        isolation = self._request.isolation
        fence = None
        if isolation is not None:
            fence = Fence(replace(isolation, suite=loaded_files(suite)))
            fence.put_up()
        sys.meta_path.insert(0, self._watch)
        names = [entry.name for entry in self._request.entries]
        activity.current().expect({name: place for place, name in enumerate(names)})
        # Output of variants must not mix with that of ptxas, nor with anything else.
        with redirect_stdout(self._recorder.log):
            tools = ToolWatch()
            variants = [self._variant(entry, cases, tools) for entry in self._request.entries]
        if fence is not None:
            fence.refuse()
        return StaticCensus(
            config=self._request.config,
            suite=None if suite.name == DEFAULT_SUITE else suite.name,
            toolchain=_toolchain(self._request.targets),
            cases=[CensusCase(name=c.spec.name, workload=c.workload.digest()) for c in cases],
            variants=variants,
        )

    def _variant(
        self, entry: VariantEntry, cases: Sequence[_Case], tools: ToolWatch
    ) -> VariantCensus:
        with activity.current().running(entry.name):
            variant = load_apart(entry)
        operations: list[OperationCensus] = []
        kernels: set[Kernel] = set()
        for case in cases:
            if lacking(variant, case.workload) is not None:
                continue  # as if it had no such case
            for device, target in enumerate(self._request.targets):
                self._driver.set_current_device(device)
                for operation in self._request.operations:
                    taken, launched = self._operation(entry, variant, case, operation, target)
                    operations.append(taken)
                    kernels |= launched
        try:
            tools.refuse()
        except TamperedError as error:
            raise UsageError(f"variant {entry.name}, while compiled: {error}") from error
        modules = self._modules(entry)
        self.files[entry.name] = sorted(str(path) for path in modules.values())
        ordered = sorted(kernels, key=lambda k: (k.name, k.signature, k.target, k.binary))
        return VariantCensus(
            name=entry.name,
            host_code=digest_of(modules)[:16],
            operations=operations,
            kernels=[self._with_code(kernel) for kernel in ordered],
        )

    def _with_code(self, kernel: Kernel) -> Kernel:
        if self._disassembler is None:
            return kernel
        return kernel.model_copy(update={"code": self._disassembler.code(kernel.binary)})

    def _operation(
        self,
        entry: VariantEntry,
        variant: type[Any],
        case: _Case,
        operation: Operation,
        target: str,
    ) -> tuple[OperationCensus, set[Kernel]]:
        where = {"operation": operation, "case": case.spec.name, "target": target}
        try:
            # A new arm for each operation: none must find state that another has left.
            arm = Arm(entry.name, variant, case.workload, _CPU)
            window = LaunchWindow(target)
            with arm.guarded():
                self._run(arm, case.steps, operation, window)
        except ArmFailedError as failed:
            refuse_full_disk(failed.error)
            return OperationCensus.model_validate(where | {"failure": _explained(failed)}), set()
        launched = {
            "steps": window.runs(),
            "kernels": sorted(kernel.id for kernel in window.kernels),
            "sequence": window.sequence,
        }
        return OperationCensus.model_validate(where | launched), window.kernels

    def _run(
        self, arm: Arm, steps: Sequence[Any], operation: Operation, window: LaunchWindow
    ) -> None:
        for step in steps:
            call = arm.ready(operation, step)
            with self._recorder.step(window):
                call()
            arm.finish(operation)

    def _modules(self, entry: VariantEntry) -> dict[str, Path]:
        """Return the files of all modules that a variant uses, by module name."""
        if entry.is_function:
            files = [entry.path, *local_imports(entry.path)]
            return {f"function file {path.name}": path for path in files}
        root = kernels_folder(entry.package, entry.kernels).parent
        # `modules_of`: modules that are loaded already, whose imports the watch does not see.
        names = {*self._watch.take(entry.package), *modules_of(entry.package)}
        modules = {name: _file_of(root, name) for name in names}
        modules |= self._watch.others((entry.package, "bt_bench"))
        modules[f"variant {entry.name}"] = entry.path
        return {name: path for name, path in modules.items() if path.is_file()}


def _built(spec: CaseSpec) -> _Case:
    workload = build_workload(spec.parameters)
    return _Case(spec, workload, inputs_on(_CPU, workload))


def _toolchain(targets: Iterable[str]) -> Toolchain:
    import triton
    from triton._C.libtriton import get_cache_invalidating_env_vars
    from triton.backends.nvidia.compiler import get_ptxas_version

    # Triton has them in its kernels' options, and not among its variables.
    also = {name: value for name in ("PTXAS_OPTIONS",) if (value := os.environ.get(name))}
    return Toolchain(
        triton=triton.__version__,
        ptxas={
            target: read_version(get_ptxas_version(capability_of(target))) for target in targets
        },
        settings=dict(sorted((get_cache_invalidating_env_vars() | also).items())),
    )


def _file_of(root: Path, module: str) -> Path:
    path = root.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _explained(failed: ArmFailedError) -> str:
    """Return the reason for a failure; for a kernel that does not compile, error and line."""
    from triton.compiler.errors import CompilationError

    error, reason = failed.error, failed.reason()
    if not isinstance(error, CompilationError):
        return reason.message.removeprefix(f"{failed.where}: ")
    return f"a kernel does not compile: {summary_of(error)} ({place_of(error)})"
