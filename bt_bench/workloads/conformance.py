"""Small random workloads that reach the corners, whatever a config happens to contain.

`check` runs every variant on them, because a config may be blind to a defect: where every mapping
is the identity, a kernel that ignores the mapping passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
EDGES = TableLayout((16, 5, 4, 2, 262_144), (6, 40, 3, 7, 1), 9, max_num_batched_tokens=64)


def conformance_workloads(seed: int) -> dict[str, Workload]:
    """The workloads that every variant is checked on, by name; new inputs for each seed."""
    return {
        "corners": random_workload(seed, CORNERS, num_steps=5, dtype="int64"),
        "corners_int32": random_workload(seed + 1, CORNERS, num_steps=2, dtype="int32"),
        "long": random_workload(seed + 2, LONG, num_steps=2, dtype="int64", full=True),
        "long_request": _long_request(),
        "edges": _edges(),
    }


def _long_request() -> Workload:
    """One request that fills its row and takes all tokens, with a write of hundreds of blocks."""
    blocks = list(range(1, 2_501))
    return Workload(
        LONG,
        "int64",
        setup=(Append(1, (blocks[:2_100],), overwrite=True),),
        steps=(
            _step([Append(1, (blocks[2_100:],), overwrite=False)], [1], [range(7_600, 10_000)]),
            _step([Append(0, (blocks[:700],), overwrite=True)], [0, 1], [range(3), range(40)]),
        ),
    )


def _edges() -> Workload:
    """Sizes of zero and at the limits, each of which some step must have."""
    groups = EDGES.num_groups
    full = tuple(list(range(1, width + 1)) for width in EDGES.widths)
    one = tuple([7] for _ in range(groups))
    none: tuple[list[int], ...] = tuple([] for _ in range(groups))
    # The last position of each group's row, the first outside of it, and one below 0.
    ends = [w * b for w, b in zip(EDGES.widths, EDGES.block_sizes, strict=True)]
    bounds = [position for end in ends for position in (end - 1, end)] + [-1, 0]
    rows = [8, 3, 5, 0, 7, 1, 2, 6, 4]
    appends = [Append(row, full, overwrite=True) for row in rows]
    return Workload(
        EDGES,
        "int64",
        setup=tuple(Append(row, one, overwrite=True) for row in rows[:4]),
        steps=(
            # All rows, every row full; the second and the last request have no token.
            _step(appends, rows, [bounds, [], *([p] for p in range(6)), []]),
            _step([], [], []),  # an empty batch: what the larger one left is zeroed
            _step([], rows[:6], [[0]] * 6),
            _step([], [], [], spare_rows=3),
            _step([], rows[:3], [[], [], []], spare_rows=2, spare_tokens=9),  # no token at all
            # One row is emptied, another written three times; some groups are not written.
            _step(
                [
                    Append(5, none, overwrite=True),
                    Append(3, (one[0], *none[1:]), overwrite=True),
                    Append(3, one, overwrite=False),
                    Append(0, one, overwrite=True),
                    Append(0, none, overwrite=True),
                    Append(0, (*none[:-1], one[-1]), overwrite=False),
                ],
                [3, 5, 0],
                [[0, 1], [2], [3]],
            ),
        ),
    )


def _step(
    appends: list[Append],
    rows: list[int],
    positions: Sequence[Iterable[int]],
    spare_rows: int = 0,
    spare_tokens: int = 0,
) -> Step:
    """A step by its requests: the row of each, and the positions of its tokens."""
    tokens = [list(request) for request in positions]
    num_tokens = sum(map(len, tokens))
    return Step(
        appends=tuple(appends),
        idx_mapping=np.array(rows, dtype=np.int64),
        query_start_loc=np.cumsum([0, *map(len, tokens)]).astype(np.int32),
        positions=np.array([p for request in tokens for p in request], dtype=np.int64),
        num_reqs_padded=len(rows) + spare_rows,
        num_tokens_padded=num_tokens + spare_tokens,
    )


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
