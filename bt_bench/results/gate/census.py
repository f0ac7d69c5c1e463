"""A static census and its file: the launches of each variant, and its compiled kernels.

All figures are exact: the same sources and the same toolchain give the same file on any machine.
Equal censuses have equal texts, with a line per kernel, case and operation.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bt_bench.base import name_of, read_text, write_text
from bt_bench.base.names import DEFAULT_SUITE, Operation
from bt_bench.results.files.invalid import parsed
from bt_bench.results.files.kinds import CENSUS
from bt_bench.results.run.nouns import Noun
from bt_bench.results.run.suites import context_of

# Containers down to here have a line per member: census, variants, one variant, its kernels.
_SPREAD_LEVELS = 4

CENSUS_NAME = "census.json"


def write_census(path: Path, census: StaticCensus) -> None:
    """Write or replace a census file atomically.

    Raises:
        UsageError: if it cannot be written.
    """
    write_text(path, census_text(census))


def census_text(census: StaticCensus) -> str:
    """Return the text of a census file."""
    return _spread(census.model_dump(mode="json", exclude_none=True), 0) + "\n"


def read_census(path: Path | str) -> StaticCensus:
    """Read a census file, or standard input for `-`.

    Raises:
        UsageError: if it cannot be read or is not a valid census; names the problem.
    """
    name = name_of(path)
    text = read_text(path, name, expected="a static census", example="census.json")
    return parsed(text, name, StaticCensus, CENSUS, _context(text), _problems)


def _context(text: str) -> dict[str, object] | None:
    """Return the context for validating operations; `None` accepts any, for other suites."""
    try:
        suite = json.loads(text).get("suite")
    except (ValueError, AttributeError, RecursionError):
        suite = None  # damaged, which is reported elsewhere
    return context_of(None) if suite in (None, DEFAULT_SUITE) else None


def _problems(census: StaticCensus) -> Iterator[str]:
    """Yield problems that types do not catch: of duplicates, only one would be compared."""
    cases = {case.name for case in census.cases}
    yield from _repeated("cases", (case.name for case in census.cases))
    yield from _repeated("variants", (variant.name for variant in census.variants))
    for variant in census.variants:
        places = (f"{of.operation}/{of.case} for {of.target}" for of in variant.operations)
        yield from _repeated(f"operations of variant {variant.name!r}", places)
        yield from _repeated(
            f"kernels of variant {variant.name!r}", (k.id for k in variant.kernels)
        )
        for of in variant.operations:
            if of.case not in cases:
                yield (
                    f"variant {variant.name!r} has {of.operation}/{of.case}, whose workload is not "
                    "in $.cases"
                )


def _repeated(what: str, names: Iterable[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"the {what} have {name!r} {count} times; expected it once"


def _spread(value: object, level: int) -> str:
    """Return JSON with the members of the outer containers on lines of their own."""
    if level == _SPREAD_LEVELS or not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        members = [f"{json.dumps(key)}: {_spread(item, level + 1)}" for key, item in value.items()]
    else:
        members = [_spread(item, level + 1) for item in value]
    indent = " " * level
    inner = f",\n{indent} ".join(members)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{indent} {inner}\n{indent}{closing}"


STATIC_SCHEMA_VERSION: Final = 1

MOST_COUNT = 2**53  # beyond it JSON numbers may not be exact
Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
"""First 16 hexadecimal digits of a SHA-256."""


class Toolchain(Noun):
    """The compilers of the binaries; with others, the same source may give other binaries."""

    triton: str
    ptxas: dict[str, str]  # version by target, as `sm_90`
    settings: dict[str, str]  # environment variables that affect Triton's compilation


class CensusCase(Noun):
    """A workload, and the digest of its arrays."""

    name: str
    workload: str


class KernelCode(Noun):
    """The composition of a kernel's machine code.

    `loads` and `stores` are counts by space and width in bits, such as `global:64`; an unknown
    space is `any`. `branches` counts branches within the kernel, without its exits.
    `dependent_loads` has file and line of each load in the longest chain of loads from global
    memory, each needing a value of the one before. `waits` has an entry for each time that a warp
    waits for loads from global memory, on the path with most waits: the files and lines of these
    loads. Both count each loop once.
    """

    instructions: Count
    loads: dict[str, Count]
    stores: dict[str, Count]
    atomics: Count
    barriers: Count
    branches: Count
    dependent_loads: list[str]
    waits: list[list[str]]


class Kernel(Noun):
    """A kernel as compiled for one target and one kind of arguments.

    `signature` has the arguments as Triton specialises them: the type, with a common divisor of the
    pointers or integers passed after a colon, or the value of a constant.

    `registers`, `spill_bytes` (stored and loaded for lack of registers) and `stack_bytes` (local
    memory) are per thread; `shared_bytes` is per program. `id` is a digest of all other fields
    before `code`. `binary` is a digest of the binary; with `code`, of its instructions alone.
    Censuses of `bt-bench profile` have `code`, censuses of gates do not.
    """

    id: Digest
    name: str
    target: str
    signature: str
    binary: Digest
    registers: Count
    spill_bytes: Count
    stack_bytes: Count
    shared_bytes: Count
    code: KernelCode | None = None


class StepLaunches(Noun):
    """Launches and torch operations of a step by name; the same for `steps` steps in a row."""

    steps: Annotated[int, Field(ge=1, le=MOST_COUNT)]
    launches: dict[str, Annotated[int, Field(ge=1, le=MOST_COUNT)]]


class OperationCensus(Noun):
    """One operation on the workload of a case, for one target.

    `kernels` has the ids of the launched kernels, one for each specialisation that Triton compiled.
    `sequence` is a digest of all launches in order: binary, grid, integers and contents of tensors.
    If the variant failed, these are empty, and `failure` has the reason.
    """

    operation: Operation
    case: str
    target: str
    steps: list[StepLaunches] = Field(default=[])
    kernels: list[Digest] = Field(default=[])
    sequence: Digest | None = None
    failure: str | None = None


class VariantCensus(Noun):
    """The census of one variant.

    `host_code` is a digest of the syntax of the modules that it uses, without comments, docstrings
    and layout.
    """

    name: str
    host_code: Digest
    operations: list[OperationCensus]
    kernels: list[Kernel]

    @model_validator(mode="after")
    def _has_all_kernels(self) -> VariantCensus:
        known = {kernel.id for kernel in self.kernels}
        for operation in self.operations:
            if unknown := sorted(set(operation.kernels) - known):
                raise PydanticCustomError(
                    "unknown_kernel",
                    "{operation}/{case} launches kernel {id}, which is not in the list of kernels",
                    {"operation": operation.operation, "case": operation.case} | {"id": unknown[0]},
                )
        return self


class StaticCensus(Noun):
    """One census file."""

    schema_version: Literal[1] = STATIC_SCHEMA_VERSION
    config: str  # the config's name
    suite: str | None = None  # `None`: the default one
    toolchain: Toolchain
    cases: list[CensusCase]
    variants: list[VariantCensus]

    def variant(self, name: str) -> VariantCensus | None:
        """Return the census of a variant, or `None` if it has none."""
        return next((variant for variant in self.variants if variant.name == name), None)

    def restricted(
        self,
        variants: Collection[str] | None = None,
        cases: Collection[str] | None = None,
        operations: Collection[Operation] | None = None,
    ) -> StaticCensus:
        """Return the census of the named variants, cases and operations; `None` keeps all."""

        def kept(of: OperationCensus) -> bool:
            return (cases is None or of.case in cases) and (
                operations is None or of.operation in operations
            )

        return self.model_copy(
            update={
                "cases": [case for case in self.cases if cases is None or case.name in cases],
                "variants": [
                    variant.model_copy(
                        update={"operations": [of for of in variant.operations if kept(of)]}
                    )
                    for variant in self.variants
                    if variants is None or variant.name in variants
                ],
            }
        )
