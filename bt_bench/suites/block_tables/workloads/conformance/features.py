"""Small workloads for features beyond the plain path: windows, dummies, and others.

Each aims at a defect that engines have had; docs/block-tables.md lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from bt_bench.suites.block_tables.workloads.assemble import DUMMY_ROW, step_of_requests
from bt_bench.suites.block_tables.workloads.conformance.random_calls import random_workload
from bt_bench.suites.block_tables.workloads.steps import Append
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_kernels.layout import INT32_MAX, TableLayout

# Reaches that are and are not multiples of the block size, and a group without a window.
# A row of the last group takes more ids than a launch carries for it as parameters.
WINDOW = TableLayout((4, 4, 5, 4), (8, 8, 7, 300), 4, 24, sliding_window_reach=(5, 0, 10, 7))
DUMMIES = TableLayout((16, 5), (3, 4), 5, 24)
# A ring buffer of one column: a position does not give the place of its token in it.
RING = TableLayout((262_144, 16), (2, 1), 3, 16, slot_mapping_enabled=(True, False))
CUSTOM = TableLayout((8, 3), (3, 9), 4, 24)
COMBINED_WINDOW = TableLayout(
    (4, 16, 5),
    (8, 1, 7),
    max_num_reqs=3,
    max_num_batched_tokens=24,
    slot_mapping_enabled=(True, False, True),
    sliding_window_reach=(6, 0, 3),
)
COMBINED_CP = TableLayout(
    (6, 18, 4),
    (5, 1, 8),
    max_num_reqs=3,
    max_num_batched_tokens=24,
    slot_mapping_enabled=(True, False, True),
    sliding_window_reach=(6, 0, 3),  # off
    cp_size=2,
    cp_rank=1,
    cp_interleave=3,
    dcp_sharded=(True, True, False),
)


def feature_workloads(seed: int) -> dict[str, Workload]:
    """Return the workloads by name; the combined ones have new inputs for each seed."""
    dummies = _dummies()
    found = {
        "window": _window(),
        "dummies": dummies,
        "dummies_int32": replace(dummies, idx_mapping_dtype="int32", steps=dummies.steps[2:]),
        "disabled": _disabled(),
        "custom_outputs": _custom_outputs(),
    }
    for cp_size, interleave in ((2, 1), (4, 4)):
        for rank in range(cp_size):
            found[f"cp{cp_size}_rank{rank}"] = _context_parallelism(cp_size, rank, interleave)
    for name, layout in (("combined_window", COMBINED_WINDOW), ("combined_cp", COMBINED_CP)):
        found[name] = _combined(seed, layout, 2, "int64")
        found[f"{name}_int32"] = _combined(seed + 1, layout, 1, "int32")
    return found


def _combined(
    seed: int, layout: TableLayout, num_steps: int, dtype: Literal["int32", "int64"]
) -> Workload:
    return random_workload(
        seed, layout, num_steps, dtype, full=True, dummies=True, custom_outputs=True
    )


def _rows(layout: TableLayout, blocks: Sequence[int | None]) -> tuple[Append, ...]:
    """Return, for each row, an append of so many blocks in every group (`None`: all that fit)."""
    return tuple(
        Append(
            row,
            tuple(
                [100 * row + 1000 * group + column + 1 for column in range(width)][:count]
                for group, width in enumerate(layout.widths)
            ),
            overwrite=True,
        )
        for row, count in enumerate(blocks)
    )


def _window() -> Workload:
    """Build windows that begin before, at and behind a column's edge, and behind the last."""
    new = _rows(WINDOW, [None, 2])[1]
    last = Append(2, ([77], [78], [], [79]), overwrite=False)
    long = [
        Append(row, tuple(list(range(10 + row, 10 + row + width)) for width in WINDOW.widths), True)
        for row in (3, 0)
    ]
    return Workload(
        WINDOW,
        "int64",
        setup=_rows(WINDOW, [None, 3, 7, None]),
        steps=(
            # By row, the first columns read: 1, -, 0, 0 · 2, -, 0, 1 · 0, -, 0, 0 (row 3 is not
            # read).
            step_of_requests([], [2, 0, 1], [[5], [9], [14]], num_computed_tokens=[9, 14, 8, 99]),
            # 2, -, 1, 2 · past the 3 columns of row 1 · past all, at the limit of int32
            step_of_requests(
                [], [1, 3, 0], [[0], [31], [15, 16]], num_computed_tokens=[15, 40, 0, INT32_MAX]
            ),
            step_of_requests([], [0], [[17]]),  # no window in this step: all columns again
            # Row 1 is a new request, beside one that has moved on.
            step_of_requests(
                [last, new], [2, 1], [[28, 0], [0, 1]], num_computed_tokens=[0, 0, 28, 0]
            ),
            # Most written ids lie before the window, and one row belongs to no request.
            step_of_requests(long, [3, 1], [[29], [2]], num_computed_tokens=[0, 2, 0, 29]),
            step_of_requests([], [3, 0], [[30], [0]]),  # the ids before the window are there, too
        ),
    )


def _dummies() -> Workload:
    """Build dummy requests first, in between, last, and alone; -1 as an index would be row 4.

    Rows 0 and 4 have blocks for every position that a dummy request has.
    """
    dummy = DUMMY_ROW
    return Workload(
        DUMMIES,
        "int64",
        setup=_rows(DUMMIES, [None, 1, 0, 2, None]),
        steps=(
            step_of_requests(
                [], [dummy, 4, dummy, 0, dummy], [[0], [7, 17], [3, 4], [14], []], spare_tokens=3
            ),
            step_of_requests([], [dummy] * 3, [[0]] * 3, spare_rows=1, spare_tokens=5),
            step_of_requests(
                [Append(1, ([9], [8]), overwrite=False)], [1, 0, dummy], [[16], [2], [1]]
            ),
        ),
    )


def _disabled() -> Workload:
    """Build a disabled group of one column beside a normal one, at positions in and far out."""
    positions = [[500_000, 500_001, 0, 15], [16, 262_144, 3]]
    return Workload(
        RING,
        "int64",
        setup=_rows(RING, [None, 0, None]),
        steps=(step_of_requests([], [2, 0], positions, spare_tokens=2),),
    )


def _context_parallelism(cp_size: int, cp_rank: int, interleave: int) -> Workload:
    """Build every position of a few blocks of all ranks, and its bounds; one group is unsharded.

    There is a sliding window, which context parallelism turns off.
    """
    layout = TableLayout(
        (8, 6),
        (3, 12),
        max_num_reqs=2,
        max_num_batched_tokens=96,
        sliding_window_reach=(4, 4),
        cp_size=cp_size,
        cp_rank=cp_rank,
        cp_interleave=interleave,
        dcp_sharded=(True, False),
    )
    end = 3 * 8 * cp_size
    positions = [range(8 * cp_size + 9), [end - 1, end, -1, 71, 72]]
    return Workload(
        layout,
        "int64",
        setup=_rows(layout, [None, None]),
        steps=(
            step_of_requests([], [1, 0], positions, spare_tokens=1, num_computed_tokens=[40, 40]),
        ),
    )


def _custom_outputs() -> Workload:
    """Build a large batch and a smaller one into buffers of the caller."""
    return Workload(
        CUSTOM,
        "int64",
        setup=_rows(CUSTOM, [None, 1, 2, None]),
        steps=(
            step_of_requests([], [3, 0, 2, 1], [[0], [8, 23], [15], [7]], spare_tokens=4),
            step_of_requests([], [0], [[1]], spare_rows=1),
        ),
        custom_outputs=True,
    )
