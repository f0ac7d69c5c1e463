"""Workloads on both sides of the thresholds of kernels and host code.

Each threshold, a size where the code takes another path, is a shipped variant's; other variants are
likely to have it, too. Steps of more than 1,024 rows or 100,000 tokens take Triton's interpreter
minutes, so these are `large`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bt_bench.suites.block_tables.workloads.assemble import step_of_requests
from bt_bench.suites.block_tables.workloads.steps import Append, Step
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_kernels.layout import TableLayout

# A program may map the tokens of two requests. Here the first has most of them, and the second
# begins behind the program's tokens, among tokens of short requests alone.
BEHIND_A_LONG_ONE = ([128, 1], [120, 16], [4] * 100 + [236] + [16] * 30)

# Three workloads share these rows and tokens, so that their kernels are compiled once.
LONG_ROWS = TableLayout((4,), (1_024 + 64 * 512 + 8,), 40, max_num_batched_tokens=131_500)


def threshold_workloads() -> dict[str, Workload]:
    """Return the workloads by name."""
    large = {
        "many_rows": _many_rows(),
        "many_tokens": _many_tokens(),
        "long_rows": _long_rows(),
        "many_writes": _many_writes(),
        "long_writes": _long_writes(),
        "more_rows_than_a_launch_tells": _more_rows_than_a_launch_tells(),
    }
    large = {name: replace(workload, large=True) for name, workload in large.items()}
    return {"behind_a_long_request": _behind_a_long_request(), **large}


def _filled(rows: Iterable[int], counts: Sequence[int]) -> tuple[Append, ...]:
    """Give each row so many blocks of each group, with ids of its own."""
    return tuple(
        Append(
            row,
            tuple(
                list(range(first, first + count))
                for group, count in enumerate(counts)
                for first in [1 + 100_000 * (row + 1) + 17 * group]
            ),
            overwrite=True,
        )
        for row in rows
    )


def _requests(
    lengths: Sequence[int], first: int = 0, rows: int = 0, appends: Sequence[Append] = ()
) -> Step:
    """Make a step of requests of these lengths in the first rows, padded to so many rows."""
    positions = [range(first, first + length) for length in lengths]
    spare = max(0, rows - len(lengths))
    return step_of_requests(list(appends), list(range(len(lengths))), positions, spare)


def _behind_a_long_request() -> Workload:
    """Build few rows, for the interpreter; from thirteen rows on, a program has two requests."""
    layout = TableLayout((16, 4), (16, 60), max_num_reqs=8, max_num_batched_tokens=300)
    lengths = [*BEHIND_A_LONG_ONE[:2], [4] * 4 + [236, 16, 3, 1]]
    steps = [_requests([128, 1], 9, 6)]
    steps += [_requests(each, index, 7) for index, each in enumerate(lengths)]
    return Workload(layout, "int64", _filled(range(8), (16, 60)), tuple(steps))


def _many_rows() -> Workload:
    """Build 1,024 rows over all groups and more, zeroed ones among them."""
    layout = TableLayout((16,) * 8, (16,) * 8, max_num_reqs=140, max_num_batched_tokens=1_200)
    steps = [_requests(BEHIND_A_LONG_ONE[0], 7, 128)]
    steps += [_requests(each, index, 129) for index, each in enumerate(BEHIND_A_LONG_ONE)]
    steps += [_requests([1] * 129, 3), _requests([33, 31] * 2 + [0, 32] * 2, 5, 140)]
    return Workload(layout, "int64", _filled(range(140), (16,) * 8), tuple(steps))


def _many_tokens() -> Workload:
    """Build as many tokens as get a program per 128, and more; and slots to pad likewise."""
    layout = replace(LONG_ROWS, block_sizes=(64,), widths=(2_200,))
    steps = [
        _requests([total - 40, 33, 7], index)
        for index, total in enumerate((8_192, 8_193, 131_072, 131_073, 131_500))
    ]
    return Workload(layout, "int64", _filled(range(3), (2_200,)), tuple(steps))


def _long_rows() -> Workload:
    """Build rows whose columns have programs of their own, as many as there may be and more."""
    (width,) = LONG_ROWS.widths
    held = [1_023, 1_024, 1_025, 1_536, 1_537, width - 9, width - 8, width - 7, width]
    setup = [append for row, count in enumerate(held) for append in _filled([row], (count,))]
    setup += _filled(range(len(held), 40), (3,))
    grown = [Append(row, ([5 + row] * 4,), overwrite=False) for row in range(6)]
    steps = (
        _requests([1] * 9, 4_000),
        _requests([1] * 6, 4_097, appends=grown),
        _requests([1] * 9, 100, 40),  # zeroed rows are long, too
        _requests([1] * 40, 1),
        step_of_requests([], [-1, 8, 5], [[0], [4 * width - 1, 4 * width], [2]]),
    )
    return Workload(LONG_ROWS, "int64", tuple(setup), steps)


def _many_writes() -> Workload:
    """Build as many writes as a launch's parameters hold, of one id and of three, and one more."""
    layout = TableLayout((16,), (40,), max_num_reqs=1_030, max_num_batched_tokens=64)
    steps = []
    for count, ids in ((64, 1), (65, 1), (256, 1), (257, 1), (1_024, 1), (1_025, 1)):
        appends = [Append(row, ([row + count] * ids,), overwrite=False) for row in range(count)]
        rows = [count - 1, 0, 1_029, count // 2]
        steps.append(step_of_requests(appends, rows, [[0], [1], [2], [16]]))
    for count in (85, 86, 102, 103, 340, 341, 409, 410):
        appends = [Append(row, ([row, row + 1, 7],), overwrite=True) for row in range(count)]
        steps.append(step_of_requests(appends, [count - 1, 5], [[17], [33]]))
    return Workload(layout, "int64", _filled(range(1_030), (2,)), tuple(steps))


def _long_writes() -> Workload:
    """Build writes of as many ids as parameters carry, programs copy or words count, and more."""
    layout = replace(LONG_ROWS, block_sizes=(1,), widths=(70_000,))
    steps = []
    for count in (255, 256, 257, 511, 512, 513, 1_025, 65_534, 65_535, 65_536):
        append = Append(1, (list(range(count, 2 * count)),), overwrite=True)
        ends = [0, count // 2, count - 1, count]
        steps.append(step_of_requests([append], [1, 0], [ends, [3]]))
        steps.append(step_of_requests([append], [0], [[count % 9]]))  # of no request
    for column in (65_534, 65_535, 65_536):
        before = Append(2, (list(range(1, column + 1)),), overwrite=True)
        grown = Append(2, ([9],), overwrite=False)
        steps.append(step_of_requests([before], [0], [[1]]))
        steps.append(step_of_requests([grown], [2], [[column - 1, column]]))
    return Workload(layout, "int64", _filled(range(3), (900,)), tuple(steps))


def _more_rows_than_a_launch_tells() -> Workload:
    """Build more rows than the parameters of a launch have bits for."""
    layout = TableLayout((16,) * 8, (2,) * 8, max_num_reqs=4_561, max_num_batched_tokens=64)
    grown = [Append(row, tuple([row + g] for g in range(8)), False) for row in (0, 47, 4_560)]
    steps = (
        step_of_requests([], [4_560, 0], [[0], [17]]),
        step_of_requests(grown, [47, 4_560, 1], [[16], [16, 1], [0]], spare_rows=130),
    )
    return Workload(layout, "int64", _filled((0, 1, 47, 4_560), (1,) * 8), steps)
