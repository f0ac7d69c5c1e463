"""The protocol: a suite's declarations of operations, workloads and variants for the harness."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, get_args, get_origin

from bt_bench.base.errors import UsageError
from bt_bench.base.names import Operation
from bt_bench.protocol.misspelt import misspelt
from bt_bench.protocol.parameters import WorkloadParameters
from bt_bench.protocol.refs import folder_at, ref_of, ref_of_value

if TYPE_CHECKING:
    from bt_bench.base import Document
    from bt_bench.protocol.driver import Driver
    from bt_bench.protocol.exploring import Explorer
    from bt_bench.protocol.workload import Workload

PROTOCOL: Final = 1
"""The version of the protocol that this bt-bench speaks."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")


class OpponentSource(Protocol):
    """The third-party code that a variant wraps; it is passed between processes."""

    @property
    def root(self) -> Path:
        """Its folder, for messages."""

    def update(self, digest: Any) -> None:
        """Add the files that may run, wholly or in part, to a digest."""


@dataclass(frozen=True)
class Opponent:
    """A variant that wraps third-party code.

    Args:
        summary: one line.
        adapter: a Python file with a function `adapt`, which takes the source and returns the
            class of the variant.
        source: the code that it wraps.
        note: a remark for the output of `bt-bench check`; may be empty.
    """

    summary: str
    adapter: Path
    source: OpponentSource
    note: str = ""


class Opponents(Protocol):
    """The available opponents of a suite."""

    @property
    def entries(self) -> Mapping[str, Opponent]:
        """The opponents by name."""

    @property
    def absent(self) -> Mapping[str, str]:
        """Names that configs may list but that are not available, with the reason."""

    def expand(self, names: Sequence[str], *, by_name: bool) -> tuple[list[str], dict[str, str]]:
        """Return names of variants, with a name that stands for several opponents spelled out.

        Args:
            names: the names as given.
            by_name: whether somebody asked for them by name, so all must be available.

        Returns:
            The available names, and why each of the others is left out.

        Raises:
            UsageError: if a required one is not available.
        """


class NoOpponents:
    """A suite without opponents."""

    entries: Mapping[str, Opponent] = {}
    absent: Mapping[str, str] = {}

    def expand(self, names: Sequence[str], *, by_name: bool) -> tuple[list[str], dict[str, str]]:
        """Return all names as they are."""
        return list(names), {}


class Suite(ABC):
    """A set of operations with their workloads and variants.

    `suite.py` of its folder defines one instance, `SUITE`. Neither that file nor its imports may
    load torch or Triton: results are read and configs are checked without them.

    Attributes:
        protocol: the version of the protocol that the suite was written for.
        name: in results and messages: lower-case letters, digits and underscores.
        title: one line for lists.
        operations: the operations that can be timed, in the order of lists.
        defaults: operations that a config measures if it names none; reports list them first.
        parameters: a class for each kind of workload; the first is the default.
        package: the Python package of its kernels, in the suite's folder.
        variants: the subpackage of `package` that has a file for each variant, among them
            `reference.py`; dots lead further down. Suites of one package have one each.
        methods: methods that a variant's class must have besides the methods of the operations.
        includes: by name, the parameters that a parameter sets; they cannot be given beside it.
        memory_advice: a clause on how to change a case that needs too much memory.
        listed: summaries of the variants by name, for a suite made of functions; `None`: each
            variant is a file of the package.
        driving: for such a suite, digests of the parts that drive and check variants, by name.
        own_config: for such a suite, the text of the config that its file stands for.
    """

    protocol: int
    name: str
    title: str
    operations: tuple[Operation, ...]
    parameters: tuple[type[WorkloadParameters], ...]
    package: str
    variants: str = "variants"
    methods: tuple[str, ...] = ()
    includes: Mapping[str, tuple[str, ...]] = {}
    memory_advice: str = "use smaller sizes"
    listed: Mapping[str, str] | None = None
    driving: Mapping[str, str] = {}
    own_config: str = ""

    @property
    def defaults(self) -> tuple[Operation, ...]:
        """The operations that a config measures if it names none."""
        return self.operations

    @abstractmethod
    def driver(self) -> type[Driver]:
        """Return the class that drives variants; it may load torch, so import it in here."""

    @property
    def kernels(self) -> Path | None:
        """The folder that `package` is imported from; `None` if it is installed."""
        return folder_at(ref_of_value(self))

    @property
    def configs(self) -> Path:
        """The folder of its stock configs, which may be missing."""
        return folder_at(ref_of_value(self)) / "configs"

    def conformance(self, seed: int) -> Mapping[str, Workload]:
        """Return small workloads for corner cases, by name; every variant is checked on them."""
        return {}

    def explorer(self) -> Explorer | None:
        """Return the maker of scenarios for `bt-bench check`.

        `None`: they are made from the conformance workloads.
        """
        return None

    def opponents(self, folders: Sequence[Path]) -> Opponents:
        """Return the variants that wrap third-party code.

        Args:
            folders: from `--vllm-source`; empty: the installed code.

        Raises:
            UsageError: for a folder without the expected contents.
        """
        if folders:
            raise UsageError(
                f"--vllm-source {folders[0]}: suite {self.name!r} has no variant of vLLM's code; "
                "leave it out"
            )
        return NoOpponents()

    def is_opponent(self, name: str) -> bool:
        """Return whether a name belongs to an opponent, available or not."""
        return False

    def replaced_by(self, key: str, value: object) -> tuple[str, ...]:
        """Return the parameters of lower layers, such as defaults, that a parameter overrides.

        Args:
            key: the parameter.
            value: its unchecked value.
        """
        outer = (name for name, parts in self.includes.items() if key in parts)
        return (*self.includes.get(key, ()), *outer)

    def tells_apart(self, named: Collection[str], key: str, values: Sequence[object]) -> bool:
        """Return whether other parameters in case names already distinguish the values of an axis.

        Args:
            named: parameters in the name.
            key: the parameter that is swept.
            values: the unchecked values of the axis.
        """
        return False

    def memory_note(self, key: str, value: int, given: Mapping[str, object]) -> str:
        """Return an addition to the refusal of a far too large size, such as the memory it takes.

        Args:
            key: the parameter.
            value: the refused value.
            given: all values of the case, unchecked.
        """
        return ""

    def describe(
        self, name: str, parameters: Any, workload: Any
    ) -> tuple[dict[str, Any], Document] | None:
        """Return a description of a workload for `bt-bench workload`, as JSON and as a document.

        Args:
            name: of the case.
            parameters: its parameters.
            workload: built from these.

        Returns:
            `None` for the common one: sizes of the steps, and the bytes that must move.
        """
        return None

    def commands(self) -> Mapping[str, Callable[..., Any]]:
        """Return the suite's own commands of bt-bench, by name: functions as Typer takes them.

        They are called as `bt-bench --suite DIR NAME …`, and return an `ExitCode` of
        `bt_bench.errors`, or nothing, which is 0.
        """
        return {}

    @cached_property
    def kinds(self) -> dict[str, type[WorkloadParameters]]:
        """The parameters of each kind of workload by its name, the default first."""
        return {_kind_of(each): each for each in self.parameters}

    @cached_property
    def by_name(self) -> dict[str, Operation]:
        """The operations by name."""
        return {str(operation): operation for operation in self.operations}

    @property
    def staging(self) -> Operation | None:
        """The operation that only stages, if there is one."""
        return next((each for each in self.operations if each.traits.on_host), None)

    def problems(self) -> list[str]:
        """Return the errors in its declarations, one sentence each."""
        return list(_problems(self))


def _problems(suite: Suite) -> list[str]:
    version = getattr(suite, "protocol", None)
    if version != PROTOCOL:
        return [
            f"protocol is {version!r}; expected {PROTOCOL}: this bt-bench speaks that version "
            "of the protocol of suites, see docs/suites.md"
        ]
    needed = ("name", "title", "operations", "parameters", "package")
    found = [
        f"SUITE has no {attribute}; expected one"
        for attribute in needed
        if not getattr(suite, attribute, None)
    ]
    if found:
        return found
    if not isinstance(suite.name, str) or not _NAME.fullmatch(suite.name):
        found.append(
            f"name is {suite.name!r}; expected lower-case letters, digits and underscores, a "
            "letter first, at most 60"
        )
    found += misspelt(type(suite), Suite)
    if not isinstance(suite.operations, tuple):
        return [*found, f"operations is {suite.operations!r}; expected a tuple of Operation(…)"]
    found += _problems_of_operations(suite)
    if not isinstance(suite.parameters, tuple):
        return [*found, f"parameters is {suite.parameters!r}; expected a tuple of classes"]
    others = [each for each in suite.parameters if not _is_kind(each)]
    if others:
        return [
            *found,
            f"parameters has {others[0]!r}; expected classes derived from WorkloadParameters",
        ]
    found += _classes_of_others(suite)
    try:
        found += _repeated_kinds(suite)
        for each in suite.parameters:
            found += misspelt(each, WorkloadParameters)
            if not isinstance(getattr(each, "features", None), property):
                found.append(f"{_place_of(each)}: features is a method; expected a property")
        default = suite.parameters[0].model_fields["workload"]
        if len(suite.parameters) > 1 and default.is_required():
            found.append(
                f"{_place_of(suite.parameters[0])}: workload has no default; a case that names no "
                "kind has the kind that is listed first, so give it its name"
            )
    except UsageError as error:
        found.append(str(error))
    return found


def _is_kind(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, WorkloadParameters)


def _repeated_kinds(suite: Suite) -> list[str]:
    seen: dict[str, type[WorkloadParameters]] = {}
    found = []
    for each in suite.parameters:
        name = _kind_of(each)
        if name in seen:
            found.append(
                f"{_place_of(each)}: workload {name!r} is also in {_place_of(seen[name])}; "
                "expected a name of its own"
            )
        seen[name] = each
    return found


def _place_of(parameters: type[WorkloadParameters]) -> str:
    return f"{parameters.__module__}.{parameters.__name__}"


def _problems_of_operations(suite: Suite) -> list[str]:
    found = []
    names = [str(operation) for operation in suite.operations]
    for operation in suite.operations:
        if not isinstance(operation, Operation):
            return [f"operations has {operation!r}; expected Operation(name, title=…)"]
        if not _NAME.fullmatch(operation):
            found.append(
                f"operation {str(operation)!r}: expected lower-case letters, digits and underscores"
            )
        try:
            path = operation.path
        except LookupError:
            found.append(f"operation {str(operation)!r} has no title; expected title=…")
            continue
        found += [
            f"operation {str(operation)!r}: path has {name!r}; expected names of operations"
            for name in path
            if name not in names
        ]
    if len(set(names)) < len(names):
        found.append(f"operations has a name twice: {', '.join(names)}")
    return found or list(_problems_of_staging(suite))


def _problems_of_staging(suite: Suite) -> Iterator[str]:
    """Yield conflicts between operations that are each valid on their own."""
    staging = [operation for operation in suite.operations if operation.traits.on_host]
    if len(staging) > 1:
        yield "several operations are on_host; expected at most one, staging"
    for operation in suite.operations:
        traits = operation.traits
        if traits.on_host and not traits.stages:
            yield f"operation {operation.name!r} is on_host; expected stages=True with it"
        if traits.stages and not staging:
            yield (
                f"operation {operation.name!r} has stages=True, and no operation is on_host; "
                "expected one, which stages"
            )
        if not traits.on_host and operation not in operation.path:
            yield (
                f"operation {operation.name!r} is not in its own path, "
                f"{', '.join(operation.path)}; expected it there, since these calls check it"
            )
    for operation in suite.defaults:
        if operation not in suite.operations:
            yield f"defaults has {str(operation)!r}; expected some of {', '.join(suite.by_name)}"


def _classes_of_others(suite: Suite) -> Iterator[str]:
    """Yield a problem for each class of another suite, which would drive its workloads."""
    for each in suite.parameters:
        try:
            owner = ref_of(each)
        except LookupError as error:
            yield f"{error}"
            continue
        if owner != ref_of(type(suite)):
            yield (
                f"{_place_of(each)} is of suite {owner.name!r}; expected a class of this suite's "
                "own modules, which may derive from it"
            )


def _kind_of(parameters: type[WorkloadParameters]) -> str:
    """Return the only value of `workload`."""
    place = _place_of(parameters)
    annotation = parameters.model_fields["workload"].annotation
    names = get_args(annotation) if get_origin(annotation) is Literal else ()
    if len(names) != 1 or not re.fullmatch(r"[A-Za-z_]\w*", str(names[0])):
        raise UsageError(
            f"{place}: workload is {annotation}; expected its name as the only value, "
            'such as Literal["uniform"]'
        )
    if lacking := ", ".join(sorted(parameters.__abstractmethods__)):
        raise UsageError(f"{place} has no method {lacking}; expected one")
    return str(names[0])
