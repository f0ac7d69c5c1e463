"""Small random workloads that reach the corners, whatever a config happens to contain.

`check` runs every variant on them, because a config may be blind to a defect: where every mapping
is the identity, a kernel that ignores the mapping passes.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from bt_bench.workloads.steps import Append, Step, Workload
from bt_kernels.layout import TableLayout

# Unequal widths, the first group not the widest; a block size that is no power of two; a group
# of one column. With `max_num_reqs` rows of these, a whole check takes a second or two under
# Triton's interpreter.
CORNERS = TableLayout((16, 5, 262_144), (6, 40, 1), max_num_reqs=6, max_num_batched_tokens=48)
# Rows, writes and token counts that take a kernel more than one pass over its block shape.
LONG = TableLayout((4,), (2_500,), max_num_reqs=2, max_num_batched_tokens=2_500)


def conformance_workloads(seed: int) -> dict[str, Workload]:
    """The workloads that every variant is checked on, by name; new inputs for each seed."""
    return {
        "corners": random_workload(seed, CORNERS, num_steps=6, dtype="int64"),
        "corners_int32": random_workload(seed + 1, CORNERS, num_steps=3, dtype="int32"),
        "long": random_workload(seed + 2, LONG, num_steps=3, dtype="int64", full=True),
    }


def random_workload(
    seed: int,
    layout: TableLayout,
    num_steps: int,
    dtype: Literal["int32", "int64"] = "int64",
    full: bool = False,
) -> Workload:
    """A workload of random calls, legal but not what any scheduler would make.

    Batches grow and shrink; rows are appended to, several times a step too, and overwritten;
    lists of ids may be empty; requests may have no token; positions may lie beyond what the row
    owns and outside its table.

    Args:
        seed: equal seeds give equal workloads.
        layout: the sizes; small ones, since everything in them is used.
        num_steps: length of the window.
        dtype: of `idx_mapping`.
        full: start with every row nearly full, rather than half of the rows half full or less.
    """
    rng = np.random.default_rng(seed)
    owned = np.zeros((layout.num_groups, layout.max_num_reqs), dtype=np.int64)
    num_rows = layout.max_num_reqs if full else (layout.max_num_reqs + 1) // 2
    fill = (0.8, 0.9) if full else (0.0, 0.5)
    setup = [
        _random_append(rng, layout, owned, int(row), *fill)
        for row in rng.permutation(layout.max_num_reqs)[:num_rows]
    ]
    steps = [_random_step(rng, layout, owned) for _ in range(num_steps)]
    return Workload(layout, dtype, tuple(setup), tuple(steps))


def _random_append(
    rng: np.random.Generator,
    layout: TableLayout,
    owned: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    row: int,
    least: float,
    most: float,
) -> Append:
    """Appends to a row, from `least` to `most` of the room that it has in each group."""
    overwrite = bool(rng.random() < 0.3)
    if overwrite:
        owned[:, row] = 0
    ids = []
    for group, width in enumerate(layout.widths):
        room = width - int(owned[group, row])
        low, high = round(room * least), max(1, round(room * most))
        count = int(rng.integers(low, high + 1)) if room else 0
        ids.append(rng.integers(0, 2**31, count).tolist())
        owned[group, row] += count
    return Append(row, tuple(ids), overwrite)


def _random_step(
    rng: np.random.Generator,
    layout: TableLayout,
    owned: np.ndarray[tuple[int, int], np.dtype[np.int64]],
) -> Step:
    rows_written = rng.integers(0, layout.max_num_reqs, rng.integers(0, layout.max_num_reqs + 3))
    appends = [_random_append(rng, layout, owned, int(row), 0.0, 0.3) for row in rows_written]
    num_reqs = int(rng.integers(1, layout.max_num_reqs + 1))
    idx_mapping = rng.permutation(layout.max_num_reqs)[:num_reqs].astype(np.int64)
    budget = layout.max_num_batched_tokens
    bounds = np.sort(rng.integers(0, rng.integers(0, budget + 1) + 1, num_reqs))
    query_start_loc = np.concatenate(([0], bounds)).astype(np.int32)
    num_tokens = int(query_start_loc[-1])
    # A tenth past the widest row, so that some positions lie outside every table, and a few
    # below 0.
    longest = max(w * b for w, b in zip(layout.widths, layout.block_sizes, strict=True))
    reach = [min(w * b for w, b in zip(layout.widths, layout.block_sizes, strict=True)), longest]
    positions = rng.integers(-2, np.asarray(reach)[rng.integers(0, 2, num_tokens)] * 11 // 10 + 1)
    return Step(
        appends=tuple(appends),
        idx_mapping=idx_mapping,
        query_start_loc=query_start_loc,
        positions=positions.astype(np.int64),
        num_reqs_padded=int(rng.integers(num_reqs, layout.max_num_reqs + 1)),
        num_tokens_padded=int(rng.integers(num_tokens, budget + 1)),
    )
