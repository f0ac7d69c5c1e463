"""The operations: apart from the other nouns, since `--help` names them and imports little."""

from __future__ import annotations

from enum import StrEnum


class Operation(StrEnum):
    """What can be timed; the numbers are those of `docs/block-tables.md`."""

    STAGE = "stage"  # 1, host only
    APPLY = "apply"  # 2
    GATHER = "gather"  # 3
    SLOTS = "slots"  # 4
    GATHER_SLOTS = "gather_slots"  # 5
    STEP = "step"  # 6
