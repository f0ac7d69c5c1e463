"""The vocabulary that `--help` needs: operations, devices, verdicts. It imports nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Self

from bt_bench.base.errors import UsageError, names_hint

if TYPE_CHECKING:
    from pydantic import ValidationInfo
    from pydantic_core import CoreSchema


class Row(StrEnum):
    """A table as an enum: a member is the name of its row, and `traits` is the rest of the row."""

    traits: Any

    def __new__(cls, name: str, traits: object = None) -> Self:
        """Create a member that compares, and is stored, as its name."""
        if traits is None:
            what = cls.__name__.lower()
            raise TypeError(f"{what} {name!r} has no traits; expected them beside its name")
        member = str.__new__(cls, name)
        member._value_ = name
        member.traits = traits
        return member


@dataclass(frozen=True)
class OperationTraits:
    """The harness's knowledge of an operation besides its name.

    Args:
        title: the text for tables and lists.
        method: the variant's method that performs the operation; a variant's `capturable` lists
            such names. Empty: the operation's own name.
        path: names of the operations that make up a whole step, if this operation is one of its
            calls. Operations of one path are checked together. Empty: this operation alone.
        on_host: the operation is the staging of a step alone. It launches nothing, and only its
            host time is measured. A suite has at most one such operation.
        stages: something is staged on the host before each call; `stage_us` is its time.
        rank: the place among the operations of the suite, for lists.
        consumes_staged: each call uses up the staged data, which a repetition must stage again.
    """

    title: str
    method: str = ""
    path: tuple[str, ...] = ()
    on_host: bool = False
    stages: bool = False
    consumes_staged: bool = False
    rank: int = 0


class Operation(str):
    """The name of an operation of a suite, with its properties as `traits`.

    An operation compares, sorts and is stored as its name. Results name the operations of their
    suite, and can be read without the suite.

    Args:
        name: the name in results and on the command line.
        traits: fields of `OperationTraits`; without any, the traits are unknown.
    """

    _traits: OperationTraits | None

    def __new__(cls, name: str, **traits: Any) -> Self:
        """Create an operation of that name."""
        operation = super().__new__(cls, name)
        operation._traits = OperationTraits(**traits) if traits else None
        return operation

    @property
    def traits(self) -> OperationTraits:
        """The operation's properties.

        Raises:
            LookupError: for a name that was not looked up in its suite.
        """
        if self._traits is None:
            raise LookupError(f"operation {str(self)!r} was not looked up in its suite")
        return self._traits

    @property
    def is_known(self) -> bool:
        """Return whether the operation was looked up in its suite, and has traits."""
        return self._traits is not None

    @property
    def name(self) -> str:
        """The name as plain text."""
        return str(self)

    @property
    def rank(self) -> int:
        """The place among the operations of the suite; 0 if unknown."""
        return 0 if self._traits is None else self._traits.rank

    @property
    def method(self) -> str:
        """The name of the variant's method that performs the operation."""
        return self.traits.method or str(self)

    @property
    def path(self) -> Path:
        """The names of the calls that make up a whole step, including this operation."""
        return self.traits.path or (str(self),)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the traits as well."""
        return _operation, (str(self), self._traits)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        """Build the schema that reads a name; `operations` of the context lists the valid ones."""
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
"""The suite if neither the command line, nor a config, nor a result names one."""

DeviceKind = Literal["cuda", "cpu"]

DeviceChoice = str
"""A value of `--device`: `auto`, `cuda`, `cpu`, `cuda:1` for the GPU of index 1, or a UUID."""

DEVICE_CHOICES = (
    "auto, cuda, cpu, cuda:N for the GPU of index N, counted from 0, or the UUID of a GPU or of a "
    "MIG instance, as nvidia-smi -L lists it (GPU-…, MIG-…)"
)

_DEVICES = re.compile(
    r"auto|cpu|cuda(?::(?P<index>\d{1,3}))?"
    # CUDA takes the first digits of a UUID for it. Old drivers name an instance by its GPU.
    r"|(?P<uuid>(?:GPU|MIG)-[0-9a-fA-F][0-9a-fA-F-]{0,40}|MIG-GPU-[0-9a-fA-F-]{1,40}/\d+/\d+)",
    re.ASCII,
)


def is_device_choice(text: str) -> bool:
    """Return whether a text is a valid choice of a device, which need not exist."""
    return _DEVICES.fullmatch(text) is not None


def gpu_index(choice: DeviceChoice) -> int | None:
    """Return the index of the chosen GPU, or `None` if the choice has no index."""
    match = _DEVICES.fullmatch(choice)
    return int(match["index"]) if match and match["index"] else None


def gpu_uuid(choice: DeviceChoice) -> str | None:
    """Return the UUID of the chosen GPU or MIG instance, or `None` if the choice has none."""
    match = _DEVICES.fullmatch(choice)
    return match["uuid"] if match else None


def kind_of(choice: DeviceChoice) -> DeviceKind:
    """Return the kind of device that runs the kernels, for any choice but `auto`."""
    return "cpu" if choice == "cpu" else "cuda"


def resolved(choice: DeviceChoice, kind: DeviceKind) -> DeviceChoice:
    """Return the choice for further processes, which must not fall back to another device.

    Args:
        choice: the user's choice.
        kind: the kind of device that the first process found.
    """
    return kind if choice == "auto" else choice


MOST_ROUNDS = 2000
"""The maximum number of rounds that a gate can be set to take."""


RECORDING_NAME = "recording.json"
VERDICTS_NAME = "verdicts.json"
"""Files in the folder of a gate: its rounds, and its verdicts."""


class FailOn(StrEnum):
    """Verdicts that make a command exit with a code other than 0."""

    SLOWER = "slower"
    FASTER = "faster"
    INCONCLUSIVE = "inconclusive"
    MISSING = "missing"
    INVALID = "invalid"


def parse_fail_on(
    given: str | Sequence[str] | None, default: Collection[FailOn]
) -> tuple[FailOn, ...]:
    """Return the verdicts that fail a comparison.

    Args:
        given: their names, as `a,b` or one by one, or `none`.
        default: the verdicts if nothing is given.

    Raises:
        UsageError: for an unknown verdict.
    """
    if given is None:
        return tuple(default)
    text = given if isinstance(given, str) else ",".join(given)
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["none"]:
        return ()
    if "none" in names:
        raise UsageError(
            f"--fail-on {text}: none cannot be combined with verdicts; expected one or the other"
        )
    known = [member.value for member in FailOn]
    for name in names:
        if name not in known:
            raise UsageError(
                f"--fail-on {text}: unknown verdict {name!r}; {names_hint(name, [*known, 'none'])}"
            )
    if not names:
        raise UsageError("--fail-on names nothing; expected verdicts, or none")
    return tuple(FailOn(name) for name in names)
