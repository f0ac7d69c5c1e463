"""Differences of opponents: results that differ on purpose, or are undefined unlike ours."""

from __future__ import annotations

from typing import Any

from bt_bench.variants import is_adapted

WRITES_TO_A_ROW = "writes_to_a_row"
POSITIONS_OUTSIDE = "positions_outside"
INT32_SLOTS = "int32_slots"
INT32_RANKS = "int32_ranks"
REFUSALS = "refusals"
OUT_PTRS = "out_ptrs"
ROWS_KEPT = "rows_kept"
SLOTS_KEPT = "slots_kept"
ONE_LENGTH = "one_length"

MEANINGS = {
    WRITES_TO_A_ROW: "several writes to a row in a step have no defined order",
    POSITIONS_OUTSIDE: "a position outside of its row reads out of bounds",
    INT32_SLOTS: "block id times block size wraps at 2^31",
    INT32_RANKS: "block size times ranks wraps at 2^31",
    REFUSALS: "a row that would become too wide is not refused before something has changed",
    OUT_PTRS: "out is not accepted without out_ptrs",
    ROWS_KEPT: "input rows from R on are left as they are and not returned",
    SLOTS_KEPT: "slots are padded from the length of positions on, and returned up to it",
    ONE_LENGTH: "the rows of all groups hold the same number of tokens",
}
"""The meaning of each name; `docs/vllm.md` describes how a check deals with it."""


class OpponentTables:
    """Base of variants that wrap somebody else's code.

    Checks consider `differences` only if such a class was loaded as an opponent: no other variant
    can excuse itself; see `differences_of`.
    """

    differences: frozenset[str] = frozenset()
    """The names in `MEANINGS` that apply to it."""


def differences_of(kind: type[Any]) -> frozenset[str]:
    """Return the differences of a class; none unless it was loaded as an opponent."""
    return (
        kind.differences if issubclass(kind, OpponentTables) and is_adapted(kind) else frozenset()
    )
