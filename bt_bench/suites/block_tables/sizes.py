"""Notes on the memory that far too large tables would need."""

from __future__ import annotations

from collections.abc import Mapping

from bt_bench.base import format_bytes
from bt_bench.suites.block_tables.workloads.parameters import MAX_REQS

# Sizes that tables grow with, and their values where a case gives none.
_SIZES = {
    "groups": 1,
    "block_size": 16,
    "requests": 1,
    "prefills": 1,
    "tokens": 1,
    "max_num_reqs": 1024,
    "max_num_batched_tokens": 8192,
    "max_model_len": 8192,
}


def memory_note(key: str, value: int, given: Mapping[str, object]) -> str:
    """Return a note on the memory of tables of an absurd size, given the case's other sizes."""
    if key not in _SIZES or not MAX_REQS <= value < 10**18:
        return ""
    sizes = dict(_SIZES)
    for name in sizes:
        size = given.get(name)
        if type(size) is int and size > 0:
            sizes[name] = size
    rows = max(sizes["max_num_reqs"], sizes["requests"], sizes["prefills"])
    slots = max(sizes["max_num_batched_tokens"], sizes["tokens"])
    columns = -(-sizes["max_model_len"] // sizes["block_size"])
    # Two int32 tables and the int64 slots of every group.
    needed = sizes["groups"] * 8 * (rows * columns + slots)
    return f"; its tables would need {format_bytes(needed)} per variant"
