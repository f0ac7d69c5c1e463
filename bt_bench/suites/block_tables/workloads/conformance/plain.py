"""Workloads for corner cases that a config may lack, most of them small and random.

`check` runs every variant on them, because a config may not reveal a defect: if every mapping is
the identity, a kernel that ignores the mapping passes.
"""

from __future__ import annotations

from bt_bench.suites.block_tables.workloads.assemble import step_of_requests
from bt_bench.suites.block_tables.workloads.conformance.features import feature_workloads
from bt_bench.suites.block_tables.workloads.conformance.random_calls import random_workload
from bt_bench.suites.block_tables.workloads.conformance.thresholds import threshold_workloads
from bt_bench.suites.block_tables.workloads.steps import Append
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_kernels.layout import TableLayout

__all__ = ["CORNERS", "EDGES", "LONG", "conformance_workloads", "random_workload"]

# Unequal widths, the first group not the widest; a block size that is not a power of two; a group
# of one column. With `max_num_reqs` rows of these, a whole check takes a second or two under
# Triton's interpreter.
CORNERS = TableLayout((16, 5, 262_144), (6, 40, 1), max_num_reqs=6, max_num_batched_tokens=48)
# Rows, writes and token counts that take a kernel more than one pass over its block shape.
LONG = TableLayout((4,), (2_500,), max_num_reqs=2, max_num_batched_tokens=2_500)
EDGES = TableLayout((16, 5, 4, 2, 262_144), (6, 40, 3, 7, 1), 9, max_num_batched_tokens=64)


def conformance_workloads(seed: int) -> dict[str, Workload]:
    """Return the workloads that variants are checked on, by name; new inputs for each seed.

    A variant is checked on every workload whose `features` it has.
    """
    return {
        "corners": random_workload(seed, CORNERS, num_steps=5, dtype="int64"),
        "corners_int32": random_workload(seed + 1, CORNERS, num_steps=2, dtype="int32"),
        "long": random_workload(seed + 2, LONG, num_steps=2, dtype="int64", full=True),
        "long_request": _long_request(),
        "unequal": _unequal(),
        "edges": _edges(),
        "shrinking": _shrinking(),
        "decoding": _decoding(),
        **feature_workloads(seed + 3),
        **threshold_workloads(),
    }


def _long_request() -> Workload:
    """Build a request that fills its row and takes all tokens, and writes of hundreds of blocks."""
    blocks = list(range(1, 2_501))
    return Workload(
        LONG,
        "int64",
        setup=(Append(1, (blocks[:2_100],), overwrite=True),),
        steps=(
            step_of_requests(
                [Append(1, (blocks[2_100:],), overwrite=False)], [1], [range(7_600, 10_000)]
            ),
            step_of_requests(
                [Append(0, (blocks[:700],), overwrite=True)], [0, 1], [range(3), range(40)]
            ),
            # A write to a row that has no request in the batch yet.
            step_of_requests([Append(0, (blocks[1_000:2_300],), overwrite=True)], [1], [range(5)]),
            step_of_requests([], [0], [range(5_190, 5_196)]),
        ),
    )


def _unequal() -> Workload:
    """Build chunks of all sizes, some empty; some end and others begin among the same tokens."""
    layout = TableLayout((4,), (40,), max_num_reqs=9, max_num_batched_tokens=400)
    rows = [4, 7, 1, 0, 8, 3, 6, 2, 5]
    steps = []
    for lengths in (
        [40, 0, 50, 33, 20, 20, 1, 25, 100],
        [20, 20, 20, 20],  # none of them is long, and two of them are
        [1, 1, 0, 0, 150, 0, 1],
        [0, 0, 0, 0, 0, 0, 0, 0, 129],
    ):
        positions = [range(row, row + length) for row, length in zip(rows, lengths, strict=False)]
        steps.append(step_of_requests([], rows[: len(lengths)], positions, spare_tokens=3))
    setup = [Append(row, ([40 * row + n for n in range(40)],), True) for row in rows]
    return Workload(layout, "int64", tuple(setup), tuple(steps))


def _edges() -> Workload:
    """Build steps with sizes of zero and at the limits."""
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
            step_of_requests(appends, rows, [bounds, [], *([p] for p in range(6)), []]),
            step_of_requests([], [], []),  # an empty batch: what the larger one left is zeroed
            step_of_requests([], rows[:6], [[0]] * 6),
            step_of_requests([], [], [], spare_rows=3),
            step_of_requests(
                [], rows[:3], [[], [], []], spare_rows=2, spare_tokens=9
            ),  # no token at all
            # One row is emptied, another written three times; some groups are not written.
            step_of_requests(
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
            step_of_requests([], [0, 5], [[0], [1]]),  # what is left of those
        ),
    )


def _shrinking() -> Workload:
    """Build batches that shrink while the engine reads as many rows and slots as before, or nearly.

    Its reads past the requests and tokens of a step must not find anything left by the last one.
    """
    layout = TableLayout((4,), (6,), max_num_reqs=5, max_num_batched_tokens=32)
    rows = [3, 0, 4, 1, 2]
    ids = [list(range(6 * row + 1, 6 * row + 7)) for row in rows]
    return Workload(
        layout,
        "int64",
        setup=tuple(Append(row, (own,), True) for row, own in zip(rows, ids, strict=True)),
        steps=(
            step_of_requests([], rows, [range(20, 24)] * 5, spare_tokens=4),
            step_of_requests([], rows[:2], [range(9), [9]], spare_rows=2, spare_tokens=14),
            step_of_requests([], rows[2:3], [[0]], spare_rows=1, spare_tokens=3),
        ),
    )


def _decoding() -> Workload:
    """Build steps that stage a block for a request, or nothing, like most steps of an engine.

    A variant may treat few writes specially, so one step has a single write, and another many.
    Each step reads rows that the step before wrote, beside the rows that it writes itself. The
    rows lie far apart: a variant may keep a bit for each row, in words with room for some.
    """
    layout = TableLayout((4, 3), (4, 5), max_num_reqs=100, max_num_batched_tokens=12)
    owned = {0: 1, 47: 2, 48: 0, 64: 3, 95: 1, 99: 2}
    rows = [95, 48, 0, 99, 47, 64]
    # Each of these rows gets one more block; the fourth step replaces row 47's blocks by one.
    grown: tuple[list[int], ...] = ([0, 47, 48, 95], [], rows[:5], [99, 47], [48])

    def append(row: int, step: int, count: int, overwrite: bool) -> Append:
        return Append(row, tuple([10 * row + step + 100 * g] * count for g in (0, 1)), overwrite)

    steps = []
    setup = tuple(append(row, 9, count, True) for row, count in owned.items())
    for index, chosen in enumerate(grown):
        appends = [append(row, index, 1, index == 3 and row == 47) for row in chosen]
        owned = {
            row: 1 if index == 3 and row == 47 else count + (row in chosen)
            for row, count in owned.items()
        }
        # The last position in a row's blocks of the first group.
        positions = [[max(0, 4 * owned[row] - 1)] for row in rows]
        if index == 4:
            positions[0] = []  # the row of the next request is not that of its token
        steps.append(step_of_requests(appends, rows, positions, spare_tokens=2))
    return Workload(layout, "int64", setup, tuple(steps))
