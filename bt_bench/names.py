"""The vocabulary that `--help` needs: operations, devices, verdicts. It imports nothing heavy."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class Operation(StrEnum):
    """What can be timed; the numbers are those of `docs/block-tables.md`."""

    STAGE = "stage"  # 1, host only
    APPLY = "apply"  # 2
    GATHER = "gather"  # 3
    SLOTS = "slots"  # 4
    GATHER_SLOTS = "gather_slots"  # 5
    STEP = "step"  # 6


OPERATION_TITLES: dict[Operation, str] = {
    Operation.STAGE: "Stage writes (host only)",
    Operation.APPLY: "Apply staged writes",
    Operation.GATHER: "Gather block tables",
    Operation.SLOTS: "Compute slot mappings",
    Operation.GATHER_SLOTS: "Gather + slots",
    Operation.STEP: "Whole step",
}

# The method of the interface that performs an operation; `capturable` speaks of these.
METHODS: dict[Operation, str] = {
    Operation.STAGE: "append_block_ids",
    Operation.APPLY: "apply_staged_writes",
    Operation.GATHER: "gather_block_tables",
    Operation.SLOTS: "compute_slot_mappings",
    Operation.GATHER_SLOTS: "gather_and_compute_slot_mappings",
    Operation.STEP: "prepare_step",
}

Path = tuple[Operation, ...]

_SEPARATE = (Operation.APPLY, Operation.GATHER, Operation.SLOTS)
# Operations that go through the same calls are checked together: a path is the sequence of calls
# that a whole step is made of.
PATHS: dict[Operation, Path] = {
    Operation.STAGE: _SEPARATE,
    Operation.APPLY: _SEPARATE,
    Operation.GATHER: _SEPARATE,
    Operation.SLOTS: _SEPARATE,
    Operation.GATHER_SLOTS: (Operation.APPLY, Operation.GATHER_SLOTS),
    Operation.STEP: (Operation.STEP,),
}

DeviceChoice = Literal["auto", "cuda", "cpu"]
DeviceKind = Literal["cuda", "cpu"]


class FailOn(StrEnum):
    """Verdicts that make a command exit with another code than 0."""

    SLOWER = "slower"
    FASTER = "faster"
    INCONCLUSIVE = "inconclusive"
    MISSING = "missing"
    INVALID = "invalid"
