"""The vocabulary that `--help` needs: operations, devices, verdicts. It imports nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from pydantic import ValidationInfo
    from pydantic_core import CoreSchema


class Row(StrEnum):
    """Base of a table: a member is its name, with the rest of its row beside it as `traits`."""

    traits: Any

    def __new__(cls, name: str, traits: object = None) -> Self:
        """A member that compares and is stored as its name."""
        if traits is None:
            what = cls.__name__.lower()
            raise TypeError(f"{what} {name!r} has no traits; expected them beside its name")
        member = str.__new__(cls, name)
        member._value_ = name
        member.traits = traits
        return member


@dataclass(frozen=True)
class OperationTraits:
    """What the harness knows of an operation besides its name.

    Args:
        title: for tables and lists.
        method: of a variant, which performs it; its `capturable` names these. Empty: the name of
            the operation.
        path: names of the operations that a whole step is made of where this is one of its calls.
            Operations of one path are checked together. Empty: this one alone.
        on_host: it is the staging of a step alone: it launches nothing, so that only its host time
            is taken. A suite has at most one such operation.
        stages: before each call something is staged on the host, whose time is `stage_us`.
        rank: place among the operations of its suite, for lists.
        consumes_staged: each call uses up what was staged: to repeat it, it is staged again.
    """

    title: str
    method: str = ""
    path: tuple[str, ...] = ()
    on_host: bool = False
    stages: bool = False
    consumes_staged: bool = False
    rank: int = 0


class Operation(str):
    """The name of an operation of a suite, with what is known of it as `traits`.

    It compares, sorts and is stored as its name. Results name the operations of their suite, so
    that they can be read without the suite.

    Args:
        name: as in results and on the command line.
        traits: fields of `OperationTraits`; without any, the traits are not known.
    """

    _traits: OperationTraits | None

    def __new__(cls, name: str, **traits: Any) -> Self:
        """An operation of that name."""
        operation = super().__new__(cls, name)
        operation._traits = OperationTraits(**traits) if traits else None
        return operation

    @property
    def traits(self) -> OperationTraits:
        """What is known of it.

        Raises:
            LookupError: for a name that was not found in its suite.
        """
        if self._traits is None:
            raise LookupError(f"operation {str(self)!r} was not looked up in its suite")
        return self._traits

    @property
    def is_known(self) -> bool:
        """Whether it was looked up in its suite, so that it has traits."""
        return self._traits is not None

    @property
    def name(self) -> str:
        """Its name, as plain text."""
        return str(self)

    @property
    def rank(self) -> int:
        """Its place among the operations of its suite; 0 where that is not known."""
        return 0 if self._traits is None else self._traits.rank

    @property
    def method(self) -> str:
        """The method of a variant that performs it."""
        return self.traits.method or str(self)

    @property
    def path(self) -> Path:
        """Names of the calls that a whole step is made of where this is one of them."""
        return self.traits.path or (str(self),)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the traits as well."""
        return _operation, (str(self), self._traits)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        """Reads a name; `operations` of the context says which there are."""
        from pydantic_core import core_schema

        return core_schema.with_info_plain_validator_function(
            _read_operation,
            json_schema_input_schema=core_schema.str_schema(),
            serialization=core_schema.to_string_ser_schema(),
        )


Path = tuple[str, ...]


def _operation(name: str, traits: OperationTraits | None) -> Operation:
    operation = Operation(name)
    operation._traits = traits
    return operation


def _read_operation(value: object, info: ValidationInfo) -> Operation:
    from pydantic_core import PydanticCustomError

    if isinstance(value, Operation):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    known: Mapping[str, Operation] | None = (info.context or {}).get("operations")
    if known is None:
        return Operation(value)
    if value not in known:
        *others, last = map(repr, map(str, known))
        expected = f"{', '.join(others)} or {last}" if others else last
        raise PydanticCustomError("enum", "Input should be {expected}", {"expected": expected})
    return known[value]


DEFAULT_SUITE = "block_tables"
"""The suite where neither the command line, nor a config, nor a result names one."""

DeviceKind = Literal["cuda", "cpu"]

DeviceChoice = str
"""What `--device` takes: `auto`, `cuda`, `cpu`, or `cuda:1` for the GPU of that index."""

DEVICE_CHOICES = "auto, cuda, cpu, or cuda:N for the GPU of index N, counted from 0"

_DEVICES = re.compile(r"auto|cpu|cuda(?::(?P<index>\d{1,3}))?", re.ASCII)


def is_device_choice(text: str) -> bool:
    """Whether a text names a device; it says nothing of whether that device exists."""
    return _DEVICES.fullmatch(text) is not None


def gpu_index(choice: DeviceChoice) -> int | None:
    """The index of the GPU that was chosen; `None` if any will do."""
    match = _DEVICES.fullmatch(choice)
    return int(match["index"]) if match and match["index"] else None


def kind_of(choice: DeviceChoice) -> DeviceKind:
    """What runs the kernels, once it is decided: not of `auto`."""
    return "cpu" if choice == "cpu" else "cuda"


def resolved(choice: DeviceChoice, kind: DeviceKind) -> DeviceChoice:
    """The choice for further processes, which must not fall back to another device.

    Args:
        choice: as it was made.
        kind: what the first process has found.
    """
    return kind if choice == "auto" else choice


MOST_ROUNDS = 2000
"""The most rounds that a gate can be told to take."""


class FailOn(StrEnum):
    """Verdicts that make a command exit with another code than 0."""

    SLOWER = "slower"
    FASTER = "faster"
    INCONCLUSIVE = "inconclusive"
    MISSING = "missing"
    INVALID = "invalid"
