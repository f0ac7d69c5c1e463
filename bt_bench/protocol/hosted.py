"""A user's suite as seen by a process that runs none of its code.

All data comes from the suite's own process, where the functions run whose names begin with `told`
or `_ask`.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, Self

from pydantic import SerializationInfo, model_serializer

from bt_bench.base import expanded
from bt_bench.base.errors import BtBenchError
from bt_bench.base.names import Operation
from bt_bench.base.processes import Sealed
from bt_bench.protocol.hosting import at_suite
from bt_bench.protocol.owners import running, suite_of
from bt_bench.protocol.parameters import WorkloadParameters, revived
from bt_bench.protocol.records import num_bytes_of, num_programs_of
from bt_bench.protocol.refs import SuiteRef, ref_of_value, suite_at
from bt_bench.protocol.suite import Opponent, Opponents, Suite
from bt_bench.results import Noun


class SuiteFacts(Noun):
    """The declarations of a suite; see `Suite`."""

    protocol: int
    name: str
    title: str
    operations: tuple[Operation, ...]
    defaults: tuple[Operation, ...]
    package: str
    variants: str
    kernels: Path | None
    configs: Path
    methods: tuple[str, ...]
    memory_advice: str
    listed: dict[str, str] | None
    driving: dict[str, str]
    own_config: str


def told_of(ref: SuiteRef) -> SuiteFacts:
    """Return the declarations of a suite."""
    suite: Suite = suite_at(ref)
    with running(suite, "a property of SUITE"):
        return SuiteFacts.model_validate(
            {name: getattr(suite, name) for name in SuiteFacts.model_fields}
        )


class HostedSuite(Suite):
    """A suite whose code runs in another process.

    Args:
        ref: the suite.
        facts: its declarations.
    """

    def __init__(self, ref: SuiteRef, facts: SuiteFacts) -> None:
        self.hosted_at = ref
        self._facts = facts
        self.protocol = facts.protocol
        self.name = facts.name
        self.title = facts.title
        self.operations = facts.operations
        self.package = facts.package
        self.variants = facts.variants
        self.methods = facts.methods
        self.memory_advice = facts.memory_advice
        self.listed = facts.listed
        self.driving = facts.driving
        self.own_config = facts.own_config

    @property
    def defaults(self) -> tuple[Operation, ...]:
        """See the base class."""
        return self._facts.defaults

    @property
    def kernels(self) -> Path | None:
        """See the base class."""
        return self._facts.kernels

    @property
    def configs(self) -> Path:
        """See the base class."""
        return self._facts.configs

    def _refused(self, *_args: Any, **_named: Any) -> Any:
        """Refuse the call: its arguments or results are of the suite's own classes."""
        raise _elsewhere(self)

    driver = conformance = explorer = describe = commands = _refused
    replaced_by = tells_apart = memory_note = problems = _refused

    def opponents(self, folders: Sequence[Path]) -> Opponents:
        """See the base class."""
        places = tuple(folders)
        return _HostedOpponents(
            self.hosted_at, places, at_suite(self.hosted_at, _ask_opponents, self.hosted_at, places)
        )

    def is_opponent(self, name: str) -> bool:
        """See the base class."""
        return at_suite(self.hosted_at, _ask_is_opponent, self.hosted_at, name)


def _ask_is_opponent(ref: SuiteRef, name: str) -> bool:
    suite: Suite = suite_at(ref)
    with running(suite, "is_opponent"):
        return bool(suite.is_opponent(name))


class _OpponentFacts(Noun):
    """An `Opponent` as data; its source is only passed on."""

    summary: str
    adapter: Path
    note: str
    root: Path
    digest: str
    source: Sealed


class _OpponentsFacts(Noun):
    """The available opponents, and the reasons why others are not."""

    entries: dict[str, _OpponentFacts]
    absent: dict[str, str]


class _HostedSource:
    """The third-party code that a variant wraps, in the form that workers receive."""

    def __init__(self, facts: _OpponentFacts) -> None:
        self.root = facts.root
        self._facts = facts

    def update(self, digest: Any) -> None:
        digest.update(self._facts.digest.encode())

    def __reduce__(self) -> tuple[Any, ...]:
        return self._facts.source.__reduce__()


class _HostedOpponents:
    """The opponents of a suite whose code runs in another process."""

    def __init__(self, ref: SuiteRef, folders: tuple[Path, ...], facts: _OpponentsFacts) -> None:
        self._asked = ref, folders
        self.absent = facts.absent
        self.entries = {
            name: Opponent(each.summary, each.adapter, _HostedSource(each), each.note)
            for name, each in facts.entries.items()
        }

    def expand(self, names: Sequence[str], *, by_name: bool) -> tuple[list[str], dict[str, str]]:
        ref, folders = self._asked
        return at_suite(ref, _ask_expanded, ref, folders, list(names), by_name)


@cache
def _opponents(ref: SuiteRef, folders: tuple[Path, ...]) -> Opponents:
    suite: Suite = suite_at(ref)
    with running(suite, "opponents"):
        return suite.opponents(folders)


def _ask_opponents(ref: SuiteRef, folders: tuple[Path, ...]) -> _OpponentsFacts:
    found = _opponents(ref, folders)
    with running(suite_at(ref), "opponents"):
        entries = {name: _facts_of(opponent) for name, opponent in found.entries.items()}
        return _OpponentsFacts(entries=entries, absent=dict(found.absent))


def _facts_of(opponent: Opponent) -> _OpponentFacts:
    digest = hashlib.sha256()
    opponent.source.update(digest)
    return _OpponentFacts(
        summary=opponent.summary,
        adapter=opponent.adapter,
        note=opponent.note,
        root=opponent.source.root,
        digest=digest.hexdigest(),
        source=Sealed(pickle.dumps(opponent.source)),
    )


def _ask_expanded(
    ref: SuiteRef, folders: tuple[Path, ...], names: list[str], by_name: bool
) -> tuple[list[str], dict[str, str]]:
    with running(suite_at(ref), "expand of the opponents"):
        found, absent = _opponents(ref, folders).expand(names, by_name=by_name)
        return list(found), dict(absent)


class HostedParameters(WorkloadParameters):
    """Parameters of a workload that another process has validated, and builds from.

    They are equal to others with the same values, wherever the suite lies: a gate compares configs
    of two trees.

    Args:
        suite: the suite.
        values: the parameters themselves.
        named_files: names of the parameters that are paths of files.
        needed: the features of the workload.
        size: memory of a variant, in bytes.
        programs: number of programs of all steps.
    """

    suite: SuiteRef
    values: dict[str, Any]
    named_files: tuple[str, ...]
    needed: frozenset[str]
    size: int
    programs: int

    @classmethod
    def of(cls, parameters: WorkloadParameters) -> Self:
        """Return parameters as data for another process."""
        values = parameters.model_dump()
        with running(suite_of(parameters), "features of the parameters"):
            return cls(
                workload=values.pop("workload"),
                suite=ref_of_value(parameters),
                values=values,
                named_files=tuple(parameters.file_names()),
                needed=frozenset(parameters.features),
                size=num_bytes_of(parameters),
                programs=num_programs_of(parameters),
            )

    @property
    def hosted_at(self) -> SuiteRef:
        """The suite."""
        return self.suite

    @property
    def features(self) -> frozenset[str]:
        """See the base class."""
        return self.needed

    def num_bytes(self) -> int:
        """See the base class."""
        return self.size

    def num_programs(self) -> int:
        """See the base class."""
        return self.programs

    def file_names(self) -> Iterator[str]:
        """See the base class."""
        return iter(self.named_files)

    def files(self) -> tuple[Path, ...]:
        """See the base class."""
        return tuple(expanded(self.values[name]) for name in self.named_files)

    def with_files(self, place: Callable[[str, Path], Path]) -> Self:
        """See the base class."""
        placed = {name: str(place(name, expanded(self.values[name]))) for name in self.named_files}
        return self.model_copy(update={"values": self.values | placed})

    def check_by_reading(self) -> None:
        """See the base class."""
        at_suite(self.suite, _ask_to_read, self)

    def build(self) -> NoReturn:
        """Refuse to build: a workload is of the suite's own classes."""
        raise _elsewhere(self)

    def __eq__(self, other: object) -> bool:
        """Compare the kind and the parameters, but not the suite's place."""
        if not isinstance(other, HostedParameters):
            return NotImplemented
        return (self.workload, self.values) == (other.workload, other.values)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the suite's own parameters, which are restored where the suite runs."""
        return revived, (self.suite, self.workload, {"workload": self.workload, **self.values})

    @model_serializer
    def _values(self, info: SerializationInfo) -> dict[str, Any]:
        values = {"workload": self.workload, **self.values}
        return dict(_without_none(values)) if info.exclude_none else values


def _without_none(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield name, dict(_without_none(value))
        elif value is not None:
            yield name, value


def _ask_to_read(parameters: WorkloadParameters) -> None:
    with running(suite_of(parameters), "check_by_reading of the parameters"):
        parameters.check_by_reading()


def _elsewhere(value: Suite | WorkloadParameters) -> BtBenchError:
    return BtBenchError(
        f"{ref_of_value(value).folder}: code of this suite does not run in this process; please "
        "report it"
    )
