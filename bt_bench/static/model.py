"""The nouns of a static census: what a variant launches, and what its kernels compile to.

All figures are exact: the same sources and the same toolchain give the same file, on any machine.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bt_bench.model import Noun
from bt_bench.operation import Operation

STATIC_SCHEMA_VERSION: Final = 1

MOST_COUNT = 2**53  # beyond it a number may not be the count that was meant
Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
"""First 16 hexadecimal digits of a SHA-256."""


class Toolchain(Noun):
    """What the binaries were compiled by: another one gives other binaries of the same source."""

    triton: str
    ptxas: dict[str, str]  # version by target, as `sm_90`
    settings: dict[str, str]  # environment variables that Triton compiles by


class CensusCase(Noun):
    """A workload, and the digest of its arrays."""

    name: str
    workload: str


class Kernel(Noun):
    """A kernel as compiled for one target and one kind of arguments.

    `signature` has the arguments as Triton specialises them: the type, after a colon what all
    pointers or integers given for it are a multiple of, or the value of a constant.

    `registers` are those of a thread, `spill_bytes` what a thread moves for lack of registers
    (stores and loads), `stack_bytes` its local memory, and `shared_bytes` the shared memory of a
    program. `id` is a digest of all the rest, and `binary` one of the binary alone.
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


class StepLaunches(Noun):
    """Launches and torch operations of a step by name; the same for `steps` steps in a row."""

    steps: Annotated[int, Field(ge=1, le=MOST_COUNT)]
    launches: dict[str, Annotated[int, Field(ge=1, le=MOST_COUNT)]]


class OperationCensus(Noun):
    """One operation on the workload of a case, for one target.

    `kernels` are the ids of those that were launched, one for each variant of a kernel that Triton
    compiled. `sequence` is a digest of all launches in their order: of binary, grid, integers and
    contents of tensors. Nothing of it is there where the variant failed, for the reason that
    `failure` gives.
    """

    operation: Operation
    case: str
    target: str
    steps: list[StepLaunches] = Field(default=[])
    kernels: list[Digest] = Field(default=[])
    sequence: Digest | None = None
    failure: str | None = None


class VariantCensus(Noun):
    """All of one variant.

    `host_code` is a digest of the syntax of the modules that it uses: comments, docstrings and
    layout do not count.
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
                    {"operation": operation.operation.value, "case": operation.case}
                    | {"id": unknown[0]},
                )
        return self


class StaticCensus(Noun):
    """One census file."""

    schema_version: Literal[1] = STATIC_SCHEMA_VERSION
    config: str  # the config's name
    toolchain: Toolchain
    cases: list[CensusCase]
    variants: list[VariantCensus]

    def variant(self, name: str) -> VariantCensus | None:
        """The census of a variant, or `None` where it has none."""
        return next((variant for variant in self.variants if variant.name == name), None)

    def restricted(
        self,
        variants: Collection[str] | None = None,
        cases: Collection[str] | None = None,
        operations: Collection[Operation] | None = None,
    ) -> StaticCensus:
        """The census without what is not named; `None` leaves all of a kind in."""

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
