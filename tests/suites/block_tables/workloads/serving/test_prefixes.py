"""Cached prefixes: an example worked out by hand, and the contents that blocks must have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bt_bench.suites.block_tables.workloads import TraceParameters
from bt_bench.suites.block_tables.workloads.serving.prefixes import Units
from bt_bench.suites.block_tables.workloads.serving.scheduler import Scheduler
from bt_bench.suites.block_tables.workloads.serving.trace import Trace
from bt_bench.suites.block_tables.workloads.steps import Step

Hashed = tuple[float, int, int, tuple[object, ...]]


def scheduler_of(requests: list[Hashed], hash_tokens: int = 4, **changes: Any) -> Scheduler:
    arrival_s, context, generated, hashes = zip(*requests, strict=True)
    trace = Trace(
        np.array(arrival_s, dtype=np.float64),
        np.array(context, dtype=np.int64),
        np.array(generated, dtype=np.int64),
        hashes=tuple(hashes),
    )
    given = {
        "workload": "trace",
        "trace": "azure_conv",
        "columns": {"hash_tokens": hash_tokens},
        "prefix_caching": True,
    }
    return Scheduler(TraceParameters(**(given | changes)), trace)


def test_hits_and_evictions_by_hand() -> None:
    scheduler = scheduler_of(
        [
            (0, 10, 2, (1, 2, 3)),
            (0.001, 9, 1, (1, 2, 9)),  # begins with two cached blocks of the first, which runs
            (5, 12, 1, (1, 7, 8)),  # with one block of the two, which have ended
            (6, 16, 1, (5, 5, 5, 5)),  # takes the blocks that were freed first
            (7, 9, 1, (1, 2, 9)),  # of its two blocks the second one was taken
        ],
        block_size=4,
        num_blocks=6,
        max_num_reqs=2,
        max_num_batched_tokens=16,
        max_model_len=32,
    )
    written, positions = [], []
    while scheduler.advance():
        step = scheduler.step()
        written.append([append.block_ids[0] for append in step.appends])
        positions.append(step.positions.tolist())
        assert all(append.overwrite for append in step.appends)
    assert written == [[[1, 2, 3]], [[1, 2, 4]], [[1, 5, 6]], [[3, 4, 2, 6]], [[1, 5, 6]]]
    assert positions == [
        list(range(10)),
        [10, 8],
        list(range(4, 12)),
        list(range(16)),
        list(range(4, 9)),
    ]
    assert (scheduler.num_hits, scheduler.num_hit_tokens) == (3, 8 + 4 + 4)
    assert scheduler.pool.num_in_use == 0
    assert scheduler.pool.num_allocations == 3 + 1 + 2 + 4 + 2
    assert scheduler.pool.peak_in_use == 4


def test_without_the_option_hashes_change_nothing() -> None:
    requests: list[Hashed] = [(0, 8, 1, (1, 2)), (1, 8, 1, (1, 2))]
    scheduler = scheduler_of(requests, prefix_caching=False)
    positions = [scheduler.step().positions.tolist() for _ in iter(scheduler.advance, False)]
    assert positions == [list(range(8))] * 2
    assert scheduler.num_hits == 0


def test_one_token_is_always_computed() -> None:
    scheduler = scheduler_of([(0, 8, 1, (1, 2)), (1, 8, 1, (1, 2))], block_size=4)
    positions = [scheduler.step().positions.tolist() for _ in iter(scheduler.advance, False)]
    assert positions == [list(range(8)), [4, 5, 6, 7]]


def test_units_fill_blocks_and_hashes_and_know_what_is_before_them() -> None:
    units = Units(4, (2, 6))
    assert units.num_tokens == 12
    assert units.first_columns(2) == [12, 4]
    same = units.keys((1, 2, 3, 4, 5, 6, 7), 28)
    assert len(same) == 2
    assert units.keys((1, 2, 3, 4, 5, 6), 28) == same
    assert units.keys((1, 2, 3, 4, 5, 6), 23) == same[:1]
    other = units.keys((9, 2, 3, 4, 5, 6), 28)
    assert not set(other) & set(same)
    assert units.keys((), 28) == []


class Contents:
    """The tokens in each block, as computed; checks that a request's own are always there."""

    def __init__(self, requests: list[Hashed], hash_tokens: int, scheduler: Scheduler) -> None:
        self.requests = requests
        self.hash_tokens = hash_tokens
        self.scheduler = scheduler
        self.tables: dict[int, list[list[int]]] = {}
        self.blocks: dict[tuple[int, int, int], object] = {}  # by group, block and offset

    def token(self, request: int, position: int) -> object:
        _, context, _, hashes = self.requests[request]
        block = position // self.hash_tokens
        if position < context and block < len(hashes):
            return (*hashes[: block + 1], position)
        return ("of its own", request, position)

    def check(self, step: Step, sizes: tuple[int, ...], reaches: tuple[int, ...]) -> None:
        for append in step.appends:
            if append.overwrite:
                self.tables[append.row] = [[] for _ in sizes]
            for table, ids in zip(self.tables[append.row], append.block_ids, strict=True):
                table.extend(ids)
        batch = self.scheduler.batch
        for request, row, start, count in zip(
            batch.requests.tolist(),
            batch.rows.tolist(),
            batch.starts.tolist(),
            batch.counts.tolist(),
            strict=True,
        ):
            for group, (size, reach) in enumerate(zip(sizes, reaches, strict=True)):
                table = self.tables[row][group]
                assert len(table) == -(-(start + count) // size)
                first = max(start - reach, 0) // size * size if reach else 0
                for position in range(start, start + count):
                    place = group, table[position // size], position % size
                    self.blocks[place] = self.token(request, position)
                for position in range(first, start + count):
                    place = group, table[position // size], position % size
                    assert self.blocks[place] == self.token(request, position)


@pytest.mark.parametrize("seed", range(24))
def test_blocks_hold_what_their_requests_computed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hash_tokens, sizes = ((2, (4,)), (4, (2, 4)), (2, (3, 2)), (8, (2,)))[seed % 4]
    window = [2 * int(rng.integers(2)) for _ in sizes]
    for_one = sum(-(-36 // size) for size in sizes)
    requests: list[Hashed] = []
    for _ in range(40):
        context = int(rng.integers(1, 30))
        hashes = tuple(rng.integers(0, 2, -(-context // hash_tokens)).tolist())
        requests.append((0.0, context, int(rng.integers(1, 6)), hashes))
    requests = [(0.05 * i, *rest) for i, (_, *rest) in enumerate(requests)]  # type: ignore[misc]
    scheduler = scheduler_of(
        requests,
        hash_tokens,
        block_size=list(sizes),
        sliding_window=window,
        num_blocks=-(-for_one // len(sizes)) + int(rng.integers(6)),
        max_num_reqs=4,
        max_num_batched_tokens=int(rng.integers(4, 24)),
        max_model_len=36,
    )
    contents = Contents(requests, hash_tokens, scheduler)
    while scheduler.advance():
        contents.check(scheduler.step(), sizes, tuple(window))
    assert scheduler.num_finished == len(requests)
    assert scheduler.pool.num_in_use == 0
    assert scheduler.num_hits > 0


def test_followers_arrive_after_the_end_of_their_predecessor() -> None:
    trace = Trace(
        np.zeros(3),
        np.array([4, 5, 6], dtype=np.int64),
        np.array([2, 1, 1], dtype=np.int64),
        follows=np.array([-1, 0, 1], dtype=np.int64),
        delay_s=np.array([0, 0, 1.0]),
    )
    parameters = TraceParameters(
        workload="trace", trace="azure_conv", base_ms=10, per_token_us=0, max_num_reqs=4
    )
    scheduler = Scheduler(parameters, trace)
    began, positions = [], []
    while True:
        before = scheduler.num_steps
        if not scheduler.advance():
            break
        began.append(scheduler.clock_s - 0.01 * (scheduler.num_steps - before))
        positions.append(scheduler.step().positions.tolist())
    assert positions == [list(range(4)), [4], list(range(5)), list(range(6))]
    assert began == pytest.approx([0, 0.01, 0.02, 1.03])
    assert scheduler.num_finished == 3
