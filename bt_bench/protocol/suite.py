"""The protocol: what a suite tells the harness about its operations, workloads and variants."""

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
    from bt_bench.protocol.parameters import WorkloadParameters
    from bt_bench.protocol.workload import Workload

PROTOCOL: Final = 1
"""The version of the protocol that this bt-bench speaks."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")


class OpponentSource(Protocol):
    """The code of others that a variant wraps; it is passed between processes."""

    @property
    def root(self) -> Path:
        """The folder of it, for messages."""

    def update(self, digest: Any) -> None:
        """Adds the files of which something may run to a digest."""


@dataclass(frozen=True)
class Opponent:
    """A variant that wraps code of others.

    Args:
        summary: one line.
        adapter: a Python file with a function `adapt`, which takes the source and returns the
            class of the variant.
        source: the code that it wraps.
        note: what `bt-bench check` says of it; may be empty.
    """

    summary: str
    adapter: Path
    source: OpponentSource
    note: str = ""


class Opponents(Protocol):
    """The opponents of a suite that are there."""

    @property
    def entries(self) -> Mapping[str, Opponent]:
        """The opponents by name."""

    @property
    def absent(self) -> Mapping[str, str]:
        """Names that configs may list and that are not there, with the reason."""

    def expand(self, names: Sequence[str], *, by_name: bool) -> tuple[list[str], dict[str, str]]:
        """Names of variants, with a name that stands for several opponents spelled out.

        Args:
            names: as they were given.
            by_name: they must all be there, since somebody asked for them.

        Returns:
            The names that there are, and why each of the others is left out.

        Raises:
            UsageError: if a required one is not there.
        """


class NoOpponents:
    """A suite without opponents."""

    entries: Mapping[str, Opponent] = {}
    absent: Mapping[str, str] = {}

    def expand(self, names: Sequence[str], *, by_name: bool) -> tuple[list[str], dict[str, str]]:
        """All names as they are."""
        return list(names), {}


class Suite(ABC):
    """A set of operations with their workloads and variants.

    `suite.py` of its folder defines one instance, `SUITE`. Neither that file nor what it imports
    when it is loaded may load torch or Triton: results are read and configs are checked without
    them.

    Attributes:
        protocol: the version of the protocol that the suite was written for.
        name: in results and messages: lower-case letters, digits and underscores.
        title: one line for lists.
        operations: what can be timed, in the order of lists.
        defaults: those that a config measures if it names none, which reports list first.
        parameters: a class for each kind of workload; the first is the default.
        package: the Python package of its kernels, in the suite's folder. Its subpackage
            `variants` has a file for each variant, among them `reference.py`.
        methods: what the class of a variant must have besides the methods of the operations.
        includes: parameters that set others, which cannot be given beside them, by name.
        memory_advice: what to change where a case needs too much memory; a clause.
    """

    protocol: int
    name: str
    title: str
    operations: tuple[Operation, ...]
    parameters: tuple[type[WorkloadParameters], ...]
    package: str
    methods: tuple[str, ...] = ()
    includes: Mapping[str, tuple[str, ...]] = {}
    memory_advice: str = "use smaller sizes"

    @property
    def defaults(self) -> tuple[Operation, ...]:
        """The operations that a config measures if it names none."""
        return self.operations

    @abstractmethod
    def driver(self) -> type[Driver]:
        """The class that drives variants; it may load torch, so import it in here."""

    @property
    def kernels(self) -> Path | None:
        """The folder that `package` is imported from; `None` if it is installed."""
        return folder_at(ref_of_value(self))

    @property
    def configs(self) -> Path:
        """The folder of its stock configs, which may be missing."""
        return folder_at(ref_of_value(self)) / "configs"

    def conformance(self, seed: int) -> Mapping[str, Workload]:
        """Small workloads that reach the corners, by name; every variant is checked on them."""
        return {}

    def explorer(self) -> Explorer | None:
        """Makes scenarios for `bt-bench check`; `None`: from the conformance workloads."""
        return None

    def opponents(self, folders: Sequence[Path]) -> Opponents:
        """Variants that wrap code of others.

        Args:
            folders: as `--vllm-source` gives them; empty: what is installed.

        Raises:
            UsageError: for a folder that does not hold what it should.
        """
        if folders:
            raise UsageError(
                f"--vllm-source {folders[0]}: suite {self.name!r} has no variant of vLLM's code; "
                "leave it out"
            )
        return NoOpponents()

    def is_opponent(self, name: str) -> bool:
        """Whether a name is one that opponents have, whether or not these are there."""
        return False

    def replaced_by(self, key: str, value: object) -> tuple[str, ...]:
        """Parameters of lower layers, such as defaults, that a parameter makes void.

        Args:
            key: the parameter.
            value: as it is given, unchecked.
        """
        outer = (name for name, parts in self.includes.items() if key in parts)
        return (*self.includes.get(key, ()), *outer)

    def tells_apart(self, named: Collection[str], key: str, values: Sequence[object]) -> bool:
        """Whether the values of an axis already show in names of cases by other parameters.

        Args:
            named: parameters in the name.
            key: the parameter that is swept.
            values: what it is swept over, unchecked.
        """
        return False

    def memory_note(self, key: str, value: int, given: Mapping[str, object]) -> str:
        """What to add to the refusal of a size that is far too large, such as the memory it takes.

        Args:
            key: the parameter.
            value: the refused value.
            given: all values of the case, unchecked.
        """
        return ""

    def describe(
        self, name: str, parameters: Any, workload: Any
    ) -> tuple[dict[str, Any], Document] | None:
        """A description of a workload for `bt-bench workload`, as JSON and as a document.

        Args:
            name: of the case.
            parameters: its parameters.
            workload: built from these.

        Returns:
            `None` for the common one: sizes of the steps, and the bytes that must move.
        """
        return None

    def commands(self) -> Mapping[str, Callable[..., Any]]:
        """Commands that the suite adds to bt-bench, by name: functions as Typer takes them.

        They are called as `bt-bench --suite DIR NAME …`, and return an `ExitCode` of
        `bt_bench.base.errors`, or nothing, which is 0.
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
        """The operation that is staging alone, if there is one."""
        return next((each for each in self.operations if each.traits.on_host), None)

    def problems(self) -> list[str]:
        """What is wrong with its declarations, one sentence each."""
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
            found += _problems_of_kind(each)
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


def _problems_of_kind(parameters: type[WorkloadParameters]) -> list[str]:
    found = list(misspelt(parameters, WorkloadParameters))
    if not isinstance(getattr(parameters, "features", None), property):
        found.append(f"{_place_of(parameters)}: features is a method; expected a property")
    return found


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
    """What does not go together in operations that are right each for itself."""
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
    """Classes that another suite defines: that one would drive their workloads."""
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
    """The only value of `workload`."""
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
