"""The vocabulary that `--help` needs: operations, devices, verdicts. It imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Self


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
        method: of the interface, which performs it; `capturable` speaks of these.
        path: names of the operations that a whole step is made of where this is one of its calls.
            Operations of one path are checked together.
        on_host: it launches nothing, so that only its host time is taken.
        applies_first: what was staged has to be applied before it, by a call of its own.
        consumes_staged: each call uses up what was staged.
    """

    title: str
    method: str
    path: tuple[str, ...]
    on_host: bool = False
    applies_first: bool = False
    consumes_staged: bool = False


_SEPARATE = ("apply", "gather", "slots")


class Operation(Row):
    """What can be timed; `docs/block-tables.md` defines each, in this order."""

    STAGE = (
        "stage",
        OperationTraits("Stage writes (host only)", "append_block_ids", _SEPARATE, on_host=True),
    )
    APPLY = (
        "apply",
        OperationTraits(
            "Apply staged writes", "apply_staged_writes", _SEPARATE, consumes_staged=True
        ),
    )
    GATHER = (
        "gather",
        OperationTraits(
            "Gather block tables", "gather_block_tables", _SEPARATE, applies_first=True
        ),
    )
    SLOTS = (
        "slots",
        OperationTraits(
            "Compute slot mappings", "compute_slot_mappings", _SEPARATE, applies_first=True
        ),
    )
    GATHER_SLOTS = (
        "gather_slots",
        OperationTraits(
            "Gather + slots",
            "gather_and_compute_slot_mappings",
            ("apply", "gather_slots"),
            applies_first=True,
        ),
    )
    STEP = (
        "step",
        OperationTraits("Whole step", "prepare_step", ("step",), consumes_staged=True),
    )

    traits: OperationTraits

    @property
    def path(self) -> Path:
        """The calls that a whole step is made of where this is one of them."""
        return tuple(Operation(name) for name in self.traits.path)


Path = tuple[Operation, ...]

DeviceChoice = Literal["auto", "cuda", "cpu"]
DeviceKind = Literal["cuda", "cpu"]


class FailOn(StrEnum):
    """Verdicts that make a command exit with another code than 0."""

    SLOWER = "slower"
    FASTER = "faster"
    INCONCLUSIVE = "inconclusive"
    MISSING = "missing"
    INVALID = "invalid"
