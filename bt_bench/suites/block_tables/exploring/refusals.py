"""The faults that every variant must refuse, by name, and the methods that they concern."""

from __future__ import annotations

from collections.abc import Collection

from bt_bench.suites.block_tables.exploring.calls import (
    BOTH,
    CAPTURED_STEPS,
    GATHER,
    SLOTS,
    STEP,
)
from bt_kernels.layout import CUSTOM_OUTPUTS, SLIDING_WINDOW

APPEND, MANY, CAPTURE = "append_block_ids", "append_many", "capture_step"
RESTORE = "restore"
DUMMY_TABLES, DUMMY_SLOTS = "get_dummy_block_tables", "get_dummy_slot_mappings"

_GATHERS, _SLOTS = (GATHER, BOTH, STEP), (SLOTS, BOTH, STEP)
_ALL = (GATHER, SLOTS, BOTH, STEP)

ROW_BELOW, ROW_PAST = "a row below 0", "a row past the tables"
LIST_MISSING, LIST_EXTRA = "a list too few", "a list too many"
ID_ABOVE, ID_BELOW = "an id above int32", "an id below int32"
TOO_WIDE = "a row wider than its table"
TOO_WIDE_TOGETHER = "a row wider than its table by two writes that fit alone"

ID_ODD, ROW_ODD = "an id that is no integer", "a row that is no integer"
IDS_ODD, LISTS_ODD = "ids that are no list", "no lists at all"
LENGTHS = "arguments of different lengths"
ANOTHER_LAYOUT = "a snapshot of another layout"

STAGING = (
    *(ROW_BELOW, ROW_PAST, LIST_MISSING, LIST_EXTRA, ID_ABOVE, ID_BELOW, TOO_WIDE),
    *(ID_ODD, ROW_ODD, IDS_ODD, LISTS_ODD),
)

VECTORS = ("idx_mapping", "query_start_loc", "positions", "num_computed_tokens")
WRONG_DTYPE, STRIDED, TWO_DIMENSIONS, ELSEWHERE, TOO_SHORT = (
    "has the wrong dtype",
    "is not contiguous",
    "has two dimensions",
    "is on another device",
    "is too short",
)

REQS_BELOW = "num_reqs_padded is below the batch"
REQS_ABOVE = "num_reqs_padded is above the rows of the tables"
TOKENS_ABOVE = "num_tokens_padded is past the buffer"
TOKENS_BELOW = "num_tokens_padded is below 0"
REQS_ODD = "num_reqs_padded is no integer"
TOKENS_ODD = "num_tokens_padded is no integer"
BATCH_TOO_LONG = "more requests than the tables have rows"
OUT_MISSING = "out has a tensor too few"
OUT_DTYPE = "out has the wrong dtype"
OUT_WIDTH = "out has another width"
OUT_SHORT = "out has too few rows"
OUT_STRIDED = "out is not contiguous"
OUT_OVERLAPS = "out overlaps itself"
OUT_TAKEN = "out overlaps a table"
OUT_ELSEWHERE = "out is on another device"
PTRS_SHORT = "out_ptrs has another length"
PTRS_ALONE = "out_ptrs without out"
PTRS_DTYPE = "out_ptrs has the wrong dtype"
PTRS_DIMENSIONS = "out_ptrs has two dimensions"
PTRS_ELSEWHERE = "out_ptrs is on another device"
SLOTS_DTYPE = "slots_out has the wrong dtype"
SLOTS_SHORT = "num_tokens_padded is past slots_out"
SLOTS_DIMENSIONS = "slots_out has one dimension"
SLOTS_GROUPS = "slots_out has a group too few"
SLOTS_STRIDED = "slots_out has gaps between elements"
SLOTS_ELSEWHERE = "slots_out is on another device"

# Contents, which only tables that validate read.
ROW_UNKNOWN = "idx_mapping has a row past the tables"
ROW_NEGATIVE = "idx_mapping has a row below -1"
STARTS_LATE = "query_start_loc does not start with 0"
STARTS_FALL = "query_start_loc decreases"
STARTS_LONG = "query_start_loc ends past positions"
STARTS_PADDED = "query_start_loc ends past num_tokens_padded"
PTRS_WRONG = "out_ptrs has another address"

NUMBER_ABOVE, NUMBER_BELOW = "a number above its limit", "a number below 0"
NUMBER_ODD = "a number that is no integer"


ARGUMENTS: dict[str, tuple[str, ...]] = {
    **{
        f"{vector} {fault}": methods
        for vector, methods in zip(VECTORS, (_ALL, _SLOTS, _SLOTS, _GATHERS), strict=True)
        for fault in (WRONG_DTYPE, STRIDED, TWO_DIMENSIONS, ELSEWHERE, TOO_SHORT)
        if fault != TOO_SHORT or vector in ("query_start_loc", "num_computed_tokens")
    },
    REQS_BELOW: _GATHERS,
    REQS_ABOVE: _GATHERS,
    TOKENS_ABOVE: _SLOTS,
    TOKENS_BELOW: _SLOTS,
    REQS_ODD: _GATHERS,
    TOKENS_ODD: _SLOTS,
    BATCH_TOO_LONG: _ALL,
}
"""Faults in the arguments of a batch, each with the methods that it concerns."""

OUTPUTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((OUT_MISSING, OUT_DTYPE, OUT_WIDTH, OUT_SHORT, OUT_STRIDED), _GATHERS),
    **dict.fromkeys((OUT_ELSEWHERE, PTRS_ELSEWHERE, OUT_OVERLAPS, OUT_TAKEN), _GATHERS),
    **dict.fromkeys((PTRS_SHORT, PTRS_ALONE, PTRS_DTYPE, PTRS_DIMENSIONS, PTRS_WRONG), _GATHERS),
    **dict.fromkeys((SLOTS_DTYPE, SLOTS_SHORT, SLOTS_GROUPS), _SLOTS),
    **dict.fromkeys((SLOTS_STRIDED, SLOTS_ELSEWHERE, SLOTS_DIMENSIONS), _SLOTS),
}
"""The same for custom outputs."""

CONTENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((ROW_UNKNOWN, ROW_NEGATIVE), _ALL),
    **dict.fromkeys((STARTS_LATE, STARTS_FALL, STARTS_LONG, STARTS_PADDED), _SLOTS),
}
"""The same for contents."""

VALIDATED = frozenset({*CONTENTS, PTRS_WRONG})
"""Faults that only tables that validate must refuse."""

NUMBERS = (DUMMY_TABLES, DUMMY_SLOTS)
"""Methods that take a number."""


def every(features: Collection[str]) -> list[tuple[str, str]]:
    """Return all faults, each with every method that must refuse it.

    Args:
        features: the variant's features and abilities.
    """
    found = [(what, method) for what in STAGING for method in (APPEND, MANY)]
    found += [(LENGTHS, MANY), (TOO_WIDE_TOGETHER, MANY), (ANOTHER_LAYOUT, RESTORE)]
    numbers = (NUMBER_ABOVE, NUMBER_BELOW, NUMBER_ODD)
    found += [(what, method) for what in numbers for method in NUMBERS]
    for of in (ARGUMENTS, CONTENTS, *([OUTPUTS] if CUSTOM_OUTPUTS in features else [])):
        found += [(what, method) for what, methods in of.items() for method in methods]
    if CAPTURED_STEPS in features:
        for of in (ARGUMENTS, CONTENTS):
            found += [(what, CAPTURE) for what in of]
    windowed = SLIDING_WINDOW in features
    return [one for one in found if windowed or not one[0].startswith("num_computed")]
