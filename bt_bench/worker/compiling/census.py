"""Static censuses: a subprocess compiles the kernels that a config's cases would launch.

This side imports neither torch nor Triton.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel

from bt_bench.base import scratch_folder
from bt_bench.base.errors import BtBenchError, UsageError
from bt_bench.base.processes import run_kept
from bt_bench.config import CaseSpec, SweepSpec
from bt_bench.protocol import DEFAULT_REF, Operation, SuiteRef, load_suite
from bt_bench.results import StaticCensus
from bt_bench.variants import Isolation, VariantEntry
from bt_bench.worker.compiling.targets import capability_of

DEFAULT_TARGETS = ("sm_80", "sm_90", "sm_100")
"""A100, H100 and H200, B200."""

# A shipped config takes seconds; ptxas may take minutes for a kernel of many thousand lines.
SECONDS_TO_COMPILE = 1800.0

REQUEST_NAME = "request.pickle"
_SHOWN_LINES = 15


@dataclass(frozen=True)
class CensusRequest:
    """A request to the compiling subprocess.

    Args:
        config: the config's name.
        cases: the workloads.
        operations: the operations to run on each.
        entries: the variants, each with the tree that it is imported from.
        targets: targets such as `sm_90`.
        isolation: the files of a repository that variants may use; `None`: any.
        suite: the variants' suite.
        code: whether to disassemble kernels.
    """

    config: str
    cases: tuple[CaseSpec, ...]
    operations: tuple[Operation, ...]
    entries: tuple[VariantEntry, ...]
    targets: tuple[str, ...]
    isolation: Isolation | None = None
    suite: SuiteRef = DEFAULT_REF
    code: bool = False


class CensusAnswer(BaseModel):
    """The subprocess's answer: a census, a message for the user, or a traceback of bt-bench.

    It also has the files of the modules that each variant uses, and the tracebacks of variants'
    failures, without duplicates.
    """

    census: StaticCensus | None = None
    files: dict[str, list[str]] = {}
    refusal: str | None = None
    defect: str | None = None
    tracebacks: list[str] = []


@dataclass(frozen=True)
class Compiled:
    """A census and the sources that it depends on.

    Args:
        census: the census of all variants.
        files: paths of the modules that each variant uses, by the variant's name.
    """

    census: StaticCensus
    files: dict[str, list[str]]


def take_census(
    spec: SweepSpec,
    entries: Sequence[VariantEntry],
    targets: Sequence[str] = DEFAULT_TARGETS,
    isolation: Isolation | None = None,
    on_traceback: Callable[[str], None] | None = None,
) -> StaticCensus:
    """Compile the kernels that variants launch in a config's cases and operations, without a GPU.

    A kernel that does not compile is a `failure` of the operations that launch it.

    Args:
        spec: its cases and operations are used; its variants are ignored.
        entries: the variants, each with the tree that it is imported from.
        targets: the targets to compile for.
        isolation: the files of a repository that variants may use; `None`: any.
        on_traceback: called with the traceback of each failure of a variant.

    Raises:
        UsageError: for no target or an unknown one, a variant file that does not import, a workload
            that cannot be built, a variant that uses another tree or changes tools that all share,
            or if the subprocess times out or dies.
        BtBenchError: for a defect of bt-bench.
    """
    return compile_cases(spec, entries, targets, isolation, on_traceback).census


def compile_cases(
    spec: SweepSpec,
    entries: Sequence[VariantEntry],
    targets: Sequence[str] = DEFAULT_TARGETS,
    isolation: Isolation | None = None,
    on_traceback: Callable[[str], None] | None = None,
    *,
    code: bool = False,
) -> Compiled:
    """Take a census as `take_census` does; with `code`, also disassemble its kernels.

    With `code`, kernels are compiled with line information.
    """
    for target in targets:
        capability_of(target)
    if not targets:
        raise UsageError("no target to compile for; expected one or more, such as sm_90")
    request = CensusRequest(
        config=spec.name,
        cases=tuple(spec.cases),
        operations=tuple(spec.operations),
        entries=tuple(entries),
        targets=tuple(targets),
        isolation=None if isolation is None else replace(isolation, audited=True),
        suite=spec.suite,
        code=code,
    )
    with scratch_folder("static") as folder:
        (folder / REQUEST_NAME).write_bytes(pickle.dumps(request))
        printed, errors = _run(folder, code)
        answer = _answer(printed, errors, spec, entries)
    if on_traceback is not None:
        for traceback in answer.tracebacks:
            on_traceback(traceback)
    if answer.refusal is not None:
        raise UsageError(answer.refusal)
    if answer.census is None:
        raise BtBenchError(f"{answer.defect}internal error in the static census; please report it")
    return Compiled(answer.census, answer.files)


def _answer(
    printed: str, errors: str, spec: SweepSpec, entries: Sequence[VariantEntry]
) -> CensusAnswer:
    """Parse the answer, which must be the only line printed.

    Raises:
        UsageError: if the subprocess died, or printed anything else.
    """
    names = ", ".join(entry.name for entry in entries)
    whose = f"the process that compiles the kernels of {names}"
    lines = printed.split("\n")[:-1]
    if not lines:
        raise UsageError(f"{whose} died{_shown(errors)}")
    context = {"operations": load_suite(spec.suite).by_name}
    try:
        (line,) = lines
        return CensusAnswer.model_validate_json(line, context=context)
    except ValueError as error:
        raise UsageError(
            f"{whose} was made to print text that bt-bench does not print there; a variant must "
            "leave the process as it is"
        ) from error


def _run(folder: Path, code: bool = False) -> tuple[str, str]:
    """Run the subprocess to its end, and return its stdout (the answer) and stderr."""
    command = [sys.executable, "-m", "bt_bench.worker.compiling", str(folder)]
    try:
        done = run_kept(command, env=_environment(folder, code), seconds=SECONDS_TO_COMPILE)
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"compiling the kernels has not ended after {SECONDS_TO_COMPILE:g} s; leave out "
            "variants or cases"
        ) from None
    return done.stdout, done.stderr


def _environment(folder: Path, code: bool) -> dict[str, str]:
    """Return an environment that makes equal sources give equal binaries, in any folder.

    With `code`, binaries contain paths and line numbers; then only their instructions are compared.
    """
    # The interpreter compiles nothing, and another backend would not be CUDA.
    left_out = ("TRITON_INTERPRET", "TRITON_DEFAULT_BACKEND")
    mine = {name: value for name, value in os.environ.items() if name not in left_out}
    return mine | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONSAFEPATH": "1",  # do not import from the working directory
        "OMP_NUM_THREADS": "1",  # tensors are small, and threads of torch would spin
        "TMPDIR": str(folder),  # a killed ptxas or C compiler leaves files there
        "TRITON_CACHE_DIR": str(folder / "cache"),  # a new cache, so nothing is stale
        "TRITON_DISABLE_LINE_INFO": str(int(not code)),
        "TRITON_DUMP_PTXAS_LOG": "1",
    }


def _shown(errors: str) -> str:
    lines = errors.strip().splitlines()[-_SHOWN_LINES:]
    return ":\n" + "\n".join(lines) if lines else " without a message"
