"""The scheduler: small examples worked out by hand, and what must hold for any trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.workloads import TraceParameters
from bt_bench.suites.block_tables.workloads.serving.limits import pool_size, validate_trace
from bt_bench.suites.block_tables.workloads.serving.scheduler import Scheduler, iterate_steps
from bt_bench.suites.block_tables.workloads.serving.trace import Trace, read_trace
from bt_bench.suites.block_tables.workloads.steps import Append, Step


def parameters(**changes: Any) -> TraceParameters:
    return TraceParameters(**({"workload": "trace", "trace": "azure_conv"} | changes))


def trace_of(*requests: tuple[float, int, int]) -> Trace:
    arrival_s, context, generated = zip(*requests, strict=True)
    return Trace(
        np.array(arrival_s, dtype=np.float64),
        np.array(context, dtype=np.int64),
        np.array(generated, dtype=np.int64),
    )


def served(*requests: tuple[float, int, int], **changes: Any) -> tuple[Scheduler, list[Step]]:
    """Return a scheduler that has served these requests, and all its steps."""
    scheduler = Scheduler(parameters(**changes), trace_of(*requests))
    return scheduler, list(iterate_steps(scheduler))


def appends_of(step: Step) -> list[tuple[int, tuple[list[int], ...], bool]]:
    return [(append.row, append.block_ids, append.overwrite) for append in step.appends]


def test_chunked_prefill_row_limit_and_reuse_by_hand():
    sizes = {"block_size": 4, "max_num_reqs": 2, "max_num_batched_tokens": 8, "num_blocks": 4}
    scheduler, steps = served((0, 6, 3), (0, 5, 2), (0.001, 3, 1), max_model_len=12, **sizes)
    assert len(steps) == 4
    first, second = steps[0].appends  # request 0 is admitted first
    assert {first.row, second.row} == {0, 1}

    # All of request 0's context, and what the budget leaves of request 1's; shorter chunk first.
    assert (first.block_ids, first.overwrite) == (([1, 2],), True)
    assert (second.block_ids, second.overwrite) == (([3],), True)
    assert steps[0].idx_mapping.tolist() == [second.row, first.row]
    assert steps[0].query_start_loc.tolist() == [0, 2, 8]
    assert steps[0].positions.tolist() == [0, 1, 0, 1, 2, 3, 4, 5]

    # Request 0 decodes, and request 1 ends its prefill in a second block; request 2 has no row.
    assert appends_of(steps[1]) == [(second.row, ([4],), False)]
    assert steps[1].idx_mapping.tolist() == [first.row, second.row]
    assert steps[1].positions.tolist() == [6, 2, 3, 4]

    # Both generate their last token.
    assert steps[2].appends == ()
    assert steps[2].positions.tolist() == [7, 5]

    # The row freed last, and the block freed first: the last one of request 0.
    assert appends_of(steps[3]) == [(second.row, ([2],), True)]
    assert steps[3].positions.tolist() == [0, 1, 2]
    assert scheduler.clock_s == pytest.approx(4 * 0.020 + (8 + 4 + 2 + 3) * 5e-6)
    assert scheduler.num_finished == 3
    assert scheduler.pool.num_in_use == 0


def test_preemption_by_hand():
    sizes = {"block_size": 4, "max_num_reqs": 4, "max_num_batched_tokens": 16, "num_blocks": 3}
    scheduler, steps = served((0, 4, 6), (0, 4, 3), max_model_len=16, **sizes)
    assert [step.positions.tolist() for step in steps] == [
        [0, 1, 2, 3, 0, 1, 2, 3],
        [4],  # takes the third block; request 1 needs one too, and is preempted
        [5],  # one block is free, and request 1 needs two for its five known tokens
        [6],
        [7],
        [8],  # takes the block that request 1 had
        [0, 1, 2, 3, 4],
        [5],
    ]
    written = [[a.block_ids[0] for a in step.appends] for step in steps]
    assert written == [[[1], [2]], [[3]], [], [], [], [[2]], [[2, 3]], []]
    assert scheduler.num_preempted == 1
    assert scheduler.pool.peak_in_use == 3


def test_a_sliding_window_by_hand():
    options = {"block_size": 2, "groups": 2, "sliding_window": [3, 0], "num_blocks": 5}
    scheduler, steps = served((0, 5, 6), (1, 1, 1), max_num_reqs=2, **options)
    assert [step.positions[0] for step in steps] == [0, 5, 6, 7, 8, 9, 0]
    # The column of tokens 0 and 1 is passed at 5 computed tokens, that of 2 and 3 at 7.
    written = [step.appends[0].block_ids if step.appends else None for step in steps]
    assert written == [
        ([1, 2, 3], [4, 5, 6]),
        None,
        ([7], [8]),
        None,
        ([9], [10]),  # the pool has ten, and blocks 1 and 2 were given back
        None,
        ([1], [2]),
    ]
    row, other = steps[0].appends[0].row, steps[-1].appends[0].row
    computed = [step.num_computed_tokens for step in steps]
    assert [array[row] for array in computed] == [0, 5, 6, 7, 8, 9, 0 if row == other else 9]
    assert computed[0].dtype == np.int32
    assert len(computed[0]) == 2
    assert scheduler.pool.num_in_use == 0


def test_rows_of_no_request_keep_what_was_computed_there():
    options = {"block_size": 2, "sliding_window": 3, "max_num_reqs": 2}
    scheduler, steps = served((0, 5, 2), (0, 3, 4), **options)
    ended = steps[0].appends[0].row
    assert [int(step.num_computed_tokens[ended]) for step in steps] == [0, 5, 5, 5]
    scheduler.batch.num_computed_tokens[:] = 99
    assert steps[-1].num_computed_tokens[ended] == 5


def test_the_clock_jumps_over_idle_time_and_requests_wait_for_their_arrival():
    scheduler = Scheduler(
        parameters(base_ms=10, per_token_us=0), trace_of((0, 3, 2), (0.015, 4, 1), (5, 2, 1))
    )
    starts_s, positions = [], []
    while True:
        clock_s = scheduler.clock_s
        if not scheduler.advance():
            break
        starts_s.append(clock_s)
        positions.append(scheduler.step().positions.tolist())
    assert positions == [[0, 1, 2], [3], [0, 1, 2, 3], [0, 1]]
    assert starts_s == pytest.approx([0, 0.01, 0.02, 0.03])
    assert scheduler.clock_s == pytest.approx(5.01)


def test_groups_take_from_one_pool_in_order():
    _, (step,) = served((0, 6, 1), block_size=[4, 2, 4])
    assert step.appends[0].block_ids == ([1, 2], [3, 4, 5], [6, 7])


def test_requests_beyond_the_budget_wait_a_step():
    scheduler = Scheduler(
        parameters(max_num_batched_tokens=2, block_size=1), trace_of(*[(0, 1, 3)] * 3)
    )
    batches = [scheduler.batch.requests.tolist() for _ in iter(scheduler.advance, False)]
    assert batches == [[0, 1]] * 3 + [[2]] * 3


def test_long_requests_are_shortened_and_counted():
    scheduler = Scheduler(
        parameters(max_model_len=10), trace_of((0, 9, 3), (0, 7, 3), (0, 2, 50), (0, 50, 1))
    )
    tokens = np.zeros(4, dtype=np.int64)
    while scheduler.advance():
        tokens[scheduler.batch.requests] += scheduler.batch.counts
    assert tokens.tolist() == [9, 9, 9, 9]
    assert scheduler.num_truncated == 3


def test_padding_of_requests_and_tokens():
    _, (step,) = served(*[(0, 9, 1)] * 3, pad_requests=True)
    assert (step.num_reqs, step.num_reqs_padded) == (3, 4)
    assert (step.num_tokens, step.num_tokens_padded) == (27, 32)


def test_the_present_state_needs_a_first_step():
    scheduler = Scheduler(parameters(), trace_of((0, 1, 1)))
    assert scheduler.live_rows() == ()
    with pytest.raises(ValueError, match="no step before"):
        scheduler.step()


def test_a_request_larger_than_the_pool_is_refused():
    with pytest.raises(
        UsageError, match=r"'num_blocks' is 2 per group, 4 in all; request 1 .* 6 for its 9 tokens"
    ):
        Scheduler(parameters(block_size=[4, 4], num_blocks=2), trace_of((0, 2, 2), (0, 8, 2)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trace": "nowhere.csv"}, "'nowhere.csv' is not a file"),
        ({"max_model_len": 1}, "'max_model_len' is 1; expected at least 2"),
        (
            {"num_blocks": 2**30, "groups": 2},
            "'num_blocks' is 1073741824 for each of 2 groups, 2147483648 in all; .* 2147483647",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    for refuse in (validate_trace, Scheduler):
        with pytest.raises(UsageError, match=message):
            refuse(parameters(**changes))


def test_the_default_pool_suffices_for_every_row_as_far_as_ids_reach():
    assert pool_size(parameters(block_size=[16, 64], max_model_len=100, max_num_reqs=3)) == 27
    assert pool_size(parameters(max_model_len=2**24, max_num_reqs=2**14)) == 2**31 - 1


class Replay:
    """Follows a scheduler as an engine would, and checks every step of it."""

    def __init__(self, scheduler: Scheduler, given: TraceParameters, num_requests: int) -> None:
        self.scheduler = scheduler
        self.given = given
        self.computed = [0] * num_requests
        self.scheduled = [0] * num_requests
        self.starts = [0] * num_requests
        self.row_of: dict[int, int] = {}
        self.sizes = given.tokens_per_column()
        self.tables: dict[int, list[list[int]]] = {}
        self.running: list[int] = []
        self.waiting = list(range(num_requests))
        self.num_preempted = self.num_steps = 0

    def check_all_steps(self) -> None:
        while self.scheduler.advance():
            self.num_steps += 1
            self.check_queue()
            self.check_step()
            self.check_state_after()

    def check_queue(self) -> None:
        """Requests are served in order, preempted from the end, and admitted in that order."""
        scheduled = sorted(self.scheduler.batch.requests.tolist())
        newly_preempted = self.scheduler.num_preempted - self.num_preempted
        self.num_preempted += newly_preempted
        stay = len(self.running) - newly_preempted
        assert scheduled[:stay] == self.running[:stay]
        self.waiting = self.running[stay:] + self.waiting
        admitted = scheduled[stay:]
        assert not (newly_preempted and admitted)
        assert admitted == self.waiting[: len(admitted)]
        self.waiting = self.waiting[len(admitted) :]
        rows = [append.row for append in self.scheduler.batch.appends if append.overwrite]
        assert len(rows) == len(admitted)
        live = {append.row for append in self.scheduler.live_rows()}
        batch = self.scheduler.batch
        row_of = dict(zip(batch.requests.tolist(), batch.rows.tolist(), strict=True))
        self.running = [request for request in scheduled if row_of[request] in live]

    def check_step(self) -> None:
        batch, step = self.scheduler.batch, self.scheduler.step()
        assert 1 <= step.num_tokens <= self.given.max_num_batched_tokens
        assert 1 <= step.num_reqs <= self.given.max_num_reqs
        assert step.query_start_loc[0] == 0
        assert step.query_start_loc[-1] == step.num_tokens == batch.num_tokens
        assert len(set(step.idx_mapping.tolist())) == step.num_reqs
        for append in step.appends:
            assert any(append.block_ids)
            if append.overwrite:
                self.tables[append.row] = [[] for _ in append.block_ids]
            for table, ids in zip(self.tables[append.row], append.block_ids, strict=True):
                table.extend(ids)
        for index, request in enumerate(batch.requests.tolist()):
            self.check_request(request, index, batch.num_prefills > step.num_reqs - index - 1)

    def check_request(self, request: int, index: int, in_prefill: bool) -> None:
        step = self.scheduler.step()
        row = int(step.idx_mapping[index])
        if any(append.overwrite and append.row == row for append in step.appends):
            self.computed[request], self.row_of[request] = 0, row
        assert self.row_of[request] == row
        first, last = step.query_start_loc[index : index + 2].tolist()
        count, start = last - first, self.computed[request]
        assert count >= 1
        assert in_prefill or count == 1
        assert step.positions[first:last].tolist() == list(range(start, start + count))
        self.computed[request] = start + count
        self.scheduled[request] += count
        held = [len(ids) for ids in self.tables[row]]
        assert held == [-(-(start + count) // size) for size in self.sizes]
        self.starts[request] = start
        if any(self.given.reaches()):
            assert step.num_computed_tokens[row] == start
        else:
            assert step.num_computed_tokens is None

    def check_state_after(self) -> None:
        live = self.scheduler.live_rows()
        owned = [block_id for append in live for block_id in self.owned(append)]
        assert len(owned) == len(set(owned)) == self.scheduler.pool.num_in_use
        assert len(live) <= self.given.max_num_reqs
        assert len({append.row for append in live}) == len(live)
        assert not owned or 1 <= min(owned) <= max(owned) <= self.scheduler.pool.num_blocks
        for append in live:
            assert list(append.block_ids) == self.tables[append.row]

    def owned(self, append: Append) -> list[int]:
        """The ids of a live row without those of columns that its windows have passed."""
        (request,) = [r for r in self.running if self.row_of[r] == append.row]
        firsts = [
            max(self.starts[request] - reach, 0) // size if reach else 0
            for size, reach in zip(self.sizes, self.given.reaches(), strict=True)
        ]
        groups = zip(append.block_ids, firsts, strict=True)
        return [block_id for ids, first in groups for block_id in ids[first:]]


@st.composite
def any_trace(draw: st.DrawFn) -> tuple[TraceParameters, Trace]:
    requests = draw(
        st.lists(
            st.tuples(st.integers(0, 6), st.integers(1, 40), st.integers(1, 12)),
            min_size=1,
            max_size=12,
        )
    )
    sizes = draw(st.lists(st.sampled_from([1, 3, 4, 16, 100]), min_size=1, max_size=3))
    max_model_len = draw(st.sampled_from([2, 20, 64]))
    enough_for_one = sum(-(-max_model_len // size) for size in sizes)
    reaches = st.lists(st.integers(0, 30), min_size=len(sizes), max_size=len(sizes))
    options = draw(
        st.just({})
        | st.fixed_dictionaries({"sliding_window": reaches})
        | st.fixed_dictionaries({"cp_size": st.sampled_from([2, 4])})
    )
    given_parameters = parameters(
        **options,
        block_size=sizes,
        max_num_reqs=draw(st.integers(1, 6)),
        max_num_batched_tokens=draw(st.integers(1, 50)),
        max_model_len=max_model_len,
        num_blocks=draw(st.none() | st.integers(enough_for_one, 2 * enough_for_one)),
        base_ms=100,
        per_token_us=draw(st.sampled_from([0, 10_000])),
        seed=draw(st.integers(0, 2)),
    )
    return given_parameters, trace_of(*sorted((a / 2, c, g) for a, c, g in requests))


@settings(max_examples=60, deadline=None)
@given(any_trace())
def test_any_trace_is_served_as_an_engine_would(example):
    given_parameters, trace = example
    scheduler = Scheduler(given_parameters, trace)
    replay = Replay(scheduler, given_parameters, len(trace))
    replay.check_all_steps()

    total = np.minimum(
        trace.context_tokens + trace.generated_tokens, given_parameters.max_model_len
    )
    assert replay.computed == (total - 1).tolist()
    assert scheduler.num_finished == len(trace)
    assert scheduler.pool.num_in_use == 0
    if scheduler.num_preempted == 0:
        assert replay.scheduled == replay.computed
    assert scheduler.pool.num_distinct <= scheduler.pool.num_blocks


def test_the_start_of_a_real_trace_under_pressure():
    whole = read_trace("azure_conv", rate=100.0)
    trace = Trace(whole.arrival_s[:40], whole.context_tokens[:40], whole.generated_tokens[:40])
    given_parameters = parameters(
        block_size=[16, 64], max_num_reqs=16, max_num_batched_tokens=2048, num_blocks=400
    )
    scheduler = Scheduler(given_parameters, trace)
    replay = Replay(scheduler, given_parameters, len(trace))
    replay.check_all_steps()
    assert replay.num_steps == scheduler.num_steps
    assert scheduler.num_preempted > 0
    assert scheduler.pool.num_allocations > scheduler.pool.num_distinct
    assert scheduler.pool.num_distinct == scheduler.pool.num_blocks


def test_seeds_change_the_rows_and_nothing_else():
    trace = trace_of(*[(0.01 * i, 10 + i, 5) for i in range(20)])
    rows = []
    for seed in (1, 1, 2):
        steps = list(iterate_steps(Scheduler(parameters(seed=seed), trace)))
        rows.append([step.idx_mapping.tolist() for step in steps])
        positions = [step.positions.tolist() for step in steps]
    assert rows[0] == rows[1] != rows[2]
    assert len(positions) == len(rows[0])
    assert rows[0][-1] != list(range(len(rows[0][-1])))
