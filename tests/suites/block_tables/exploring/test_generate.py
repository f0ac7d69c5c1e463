"""Scenarios are legal, the same each time, and need no feature beyond those given."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from bt_bench.protocol import Source
from bt_bench.runs import explore
from bt_bench.suites.block_tables.exploring import refusals
from bt_bench.suites.block_tables.exploring.batches import MANY, edges_of
from bt_bench.suites.block_tables.exploring.calls import (
    BOTH,
    CAPTURED_STEPS,
    GATHER,
    MIXED,
    OTHERS,
    OWN_SIZE,
    SLOTS,
    STEP,
    STEPS_IN_FLIGHT,
    Apply,
    Batch,
    Capture,
    Other,
    Publish,
    Refused,
    Renew,
    Restore,
    Run,
    Scenario,
    Snapshot,
    Stage,
)
from bt_bench.suites.block_tables.exploring.extremes import EXTREMES, LARGER
from bt_bench.suites.block_tables.exploring.generate import make
from bt_bench.suites.block_tables.exploring.schedule import OTHERS as THEMES
from bt_bench.suites.block_tables.exploring.schedule import SCENARIOS, theme_of
from bt_bench.suites.block_tables.exploring.shrink import is_legal
from bt_kernels.layout import (
    CUSTOM_OUTPUTS,
    DUMMY_REQUESTS,
    FEATURES,
    MAX_NUM_REQS,
    SLIDING_WINDOW,
    TableLayout,
)

ABILITIES = FEATURES | {CAPTURED_STEPS, STEPS_IN_FLIGHT, *OTHERS}
SIZES = (3, 64, 256, 1000)
SEEDS = (7, 8)
BEYOND = 2 * SCENARIOS + 3 * len(THEMES)


@cache
def scenario(
    number: int,
    features: frozenset[str] = ABILITIES,
    *,
    deep: bool = False,
    seed: int = 7,
    sizes: tuple[int, ...] = SIZES,
) -> Scenario:
    return make(Source(seed, number, features, sizes, deep))


def default_run(seed: int = 7) -> list[Scenario]:
    return [scenario(number, seed=seed) for number in range(SCENARIOS)]


def calls_of(*kinds: type, made: Iterable[Scenario] | None = None) -> list[tuple[TableLayout, Any]]:
    """Return the calls of some kinds, each with its layout; by default those of a default run."""
    scenarios = default_run() if made is None else made
    calls = [(one.layouts[call.table], call) for one in scenarios for call in one.calls]
    return [(layout, call) for layout, call in calls if isinstance(call, kinds)]


def batches_of(made: Scenario) -> list[tuple[TableLayout, Batch]]:
    """With the layout that each is for."""
    return [(layout, call.batch) for layout, call in calls_of(Run, Capture, made=[made])]


def check(made: Scenario) -> None:
    assert is_legal(made)
    assert made.calls
    for layout, batch in batches_of(made):
        assert len(batch.starts) == len(batch.rows) + 1
        assert batch.starts[0] == 0
        assert (np.diff(batch.starts) >= 0).all()
        tokens = int(batch.starts[-1])
        assert tokens <= len(batch.positions)
        assert tokens <= batch.tokens
        assert batch.has_own_slots or batch.tokens <= layout.max_num_batched_tokens
        assert len(batch.rows) <= batch.reqs <= layout.max_num_reqs
        assert (batch.rows >= -1).all()
        assert batch.int64 or (batch.rows < 2**31).all()
        if batch.computed is not None:
            assert len(batch.computed) == layout.max_num_reqs
            assert ((batch.computed >= 0) & (batch.computed < 2**31)).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_scenarios_are_legal(seed: int) -> None:
    for made in default_run(seed):
        check(made)
    for number in range(SCENARIOS, BEYOND, 5):
        check(scenario(number, seed=seed))


def test_rows_that_do_not_exist_come_without_validating() -> None:
    """Tables that validate refuse them."""
    found = 0
    for made in default_run():
        validating: dict[int, bool] = {}
        for call in made.calls:
            if getattr(call, "name", "") == "validate":
                validating[call.table] = call.value  # type: ignore[union-attr]
            if isinstance(call, Renew):
                validating[call.table] = False
            if isinstance(call, Run):
                beyond = (call.batch.rows >= made.layouts[call.table].max_num_reqs).any()
                assert not (beyond and validating.get(call.table))
                found += bool(beyond)
    assert found > 3


def test_rows_whose_bits_are_half_those_of_a_row_come() -> None:
    """An int64 mapping may have any number: those past the tables are dummies."""
    aliases = [
        row % 2**32 in {write.row for stage in stages for write in stage.writes}
        for made in default_run()
        for stages in [[call for call in made.calls if isinstance(call, Stage)]]
        for call in made.calls
        if isinstance(call, Run)
        for row in call.batch.rows.tolist()
        if row >= 2**32
    ]
    assert sum(aliases) > 5


def test_the_last_call_comes_again() -> None:
    """Also behind calls that change what it wrote, and with other tables."""
    behind = set()
    for made in default_run():
        for before, call, after in zip(made.calls, made.calls[1:], made.calls[2:], strict=False):
            if not isinstance(after, Run) or not after.same_tensors:
                continue
            if isinstance(before, Run) and before.batch is after.batch:
                behind.add(type(call).__name__)
    assert {"Dummies", "Snapshot", "Replace", "Stage", "SetFlag"} <= behind


def test_a_source_makes_one_scenario() -> None:
    number = SCENARIOS - 1
    first, second = (make(Source(7, number, ABILITIES, SIZES)) for _ in range(2))
    assert pickle.dumps(first) == pickle.dumps(second)
    assert pickle.dumps(first) != pickle.dumps(scenario(number, seed=8))


def test_no_feature_is_needed_that_is_not_there() -> None:
    for number in range(SCENARIOS):
        made = scenario(number, frozenset())
        assert is_legal(made)
        assert made.in_flight is None
        assert all(not layout.features for layout in made.layouts)
        for call in made.calls:
            assert not isinstance(call, (Capture, Publish, Other))
            if isinstance(call, Refused):
                assert (call.what, call.method) in refusals.every(frozenset())
            if isinstance(call, Run):
                assert call.batch.out is None
                assert call.batch.computed is None
                assert (call.batch.rows >= 0).all()
                assert (call.batch.rows < made.layouts[call.table].max_num_reqs).all()


def test_everything_is_reached() -> None:
    made = default_run()
    calls = [call for one in made for call in one.calls]
    kinds = {type(call).__name__ for call in calls}
    assert kinds == {
        *("Stage", "Apply", "Run", "Dummies", "Snapshot", "Restore", "SetFlag", "Refused"),
        *("Capture", "Publish", "Other", "Replace", "Renew"),
    }
    runs = [call for call in calls if isinstance(call, Run)]
    assert len({call.method for call in runs}) == 4
    assert {call.batch.out for call in runs} >= {None, MIXED, 0, 1, OWN_SIZE, 3}
    assert any((call.batch.rows == -1).any() for call in runs)
    assert any(call.same_tensors for call in runs)
    assert {call.method for call in calls if isinstance(call, Other)} == set(OTHERS)
    assert any(one.in_flight for one in made)
    assert any(call.batch.numpy_sizes for call in runs)
    assert 30 < sum(one.kept for one in made) < len(made) - 20
    computed = [call.batch.computed for call in runs if call.batch.computed is not None]
    assert {0, 2**31 - 1} <= set(np.concatenate(computed).tolist())
    assert len({call.form for call in calls if isinstance(call, Stage)}) == 6
    features = frozenset[str]().union(*(layout.features for one in made for layout in one.layouts))
    assert features | {CUSTOM_OUTPUTS, DUMMY_REQUESTS} == FEATURES
    assert SLIDING_WINDOW in features
    ends = {
        (call.replay is None, call.step is None, call.restored is None, bool(call.later))
        for _, call in calls_of(Publish)
    }
    assert len(ends) == 7


@pytest.mark.parametrize("seed", SEEDS)
def test_every_refusal_is_tried(seed: int) -> None:
    tried = {(call.what, call.method) for _, call in calls_of(Refused, made=default_run(seed))}
    assert set(refusals.every(ABILITIES)) - tried == set()


def test_extremes_come_first_and_once() -> None:
    names = [theme_of(number) for number in range(SCENARIOS)]
    extremes = [extreme.theme for extreme in EXTREMES]
    assert names[: len(extremes)] == extremes
    assert len({*extremes}) == len(extremes)
    assert not {*names[len(extremes) :]} & {*extremes}
    assert [scenario(number).theme for number in range(len(extremes))] == extremes
    assert explore.SCENARIOS[False] == SCENARIOS


@pytest.mark.parametrize("seed", SEEDS)
def test_sizes_that_the_docs_promise_are_reached(seed: int) -> None:
    made = default_run(seed)
    layouts = [layout for one in made for layout in one.layouts]
    batches = [pair for one in made for pair in batches_of(one)]
    assert max(len(batch.rows) for _, batch in batches) > 1_024
    assert max(layout.num_groups for layout in layouts) == 33
    assert max(max(layout.widths) for layout in layouts) == 66_000
    assert max(int(batch.starts[-1]) for _, batch in batches) == 40_000
    # Each limit that a layout documents, but for those that memory sets.
    assert max(layout.max_num_reqs for layout in layouts) == MAX_NUM_REQS
    assert max(max(layout.block_sizes) for layout in layouts) == 2**31 - 1
    assert max(max(layout.sliding_window_reach, default=0) for layout in layouts) == 2**31 - 1
    spans = {(layout.cp_size, max(layout.tokens_per_block)) for layout in layouts}
    assert {(3, 3 * 2**30), (2**20, 2**50)} <= spans
    assert {2, 12} <= {ranks for ranks, _ in spans}
    assert max(len(call.writes) for _, call in calls_of(Stage, made=made)) >= 520
    large = made[named("positions of 2**42")]
    assert max(int(batch.positions.max(initial=0)) for _, batch in batches_of(large)) > 2**40
    assert own_tokens(made, "positions of 2**60 over ranks", beyond=2**59) > 9
    assert own_tokens(made, "blocks of 2**31 tokens over 3 ranks", beyond=2**32) > 9


def own_tokens(made: list[Scenario], theme: str, *, beyond: int) -> int:
    """Tokens at such positions inside of their rows that the tables' own rank holds."""
    count = 0
    (one,) = (one for one in made if one.theme == theme)
    (layout,) = one.layouts
    for _, batch in batches_of(one):
        turns = batch.positions[: batch.starts[-1]] // layout.cp_interleave
        at = batch.positions[: batch.starts[-1]]
        inside = (at > beyond) & (at < layout.tokens_per_block[0] * layout.widths[0])
        count += int((inside & (turns % layout.cp_size == layout.cp_rank)).sum())
    return count


@pytest.mark.parametrize("seed", range(8))
def test_blocks_of_2_31_tokens_are_shared(seed: int) -> None:
    (layout,) = scenario(named("blocks of 2**31 tokens over 3 ranks"), seed=seed).layouts
    assert (layout.cp_interleave, layout.dcp_sharded) == (2**30, (True,))
    (layout,) = scenario(named("positions of 2**60 over ranks"), seed=seed).layouts
    assert layout.tokens_per_block == (2**50,)


@pytest.mark.parametrize("seed", SEEDS)
def test_few_rows_of_a_large_table_are_written_and_read(seed: int) -> None:
    """Stage and read the same rows in a step; of all rows drawn anyhow hardly any would meet."""
    made = scenario(named("a table of 32,767 rows"), seed=seed)
    met: set[int] = set()
    staged: set[int] = set()
    for call in made.calls[1:]:
        if isinstance(call, Stage):
            staged |= {write.row for write in call.writes}
        if isinstance(call, Run | Capture) and getattr(call, "method", STEP) == STEP:
            met |= staged & {*call.batch.rows.tolist()}
            staged.clear()
    assert len(met) > 9
    assert max(met) >= 2**14


@pytest.mark.parametrize("seed", SEEDS)
def test_sets_of_outputs_come_to_the_same_tables(seed: int) -> None:
    """Keep new tables away from between them: these would have seen none of the sets."""
    for number, sets in (
        (named("40 sets of outputs"), [*range(3, 43), 3]),
        (named("several sets of outputs"), [0, MIXED, 1, MIXED]),
    ):
        made = scenario(number, seed=seed)
        assert not any(isinstance(call, Renew) for call in made.calls)
        outs = [call.batch.out for call in made.calls if isinstance(call, Run)]
        first = outs.index(sets[0])
        assert outs[first : first + len(sets)] == sets


def named(theme: str) -> int:
    """The number of an extreme."""
    return [extreme.theme for extreme in EXTREMES].index(theme)


@pytest.mark.parametrize("seed", SEEDS)
def test_many_rows_of_many_groups_in_each_way(seed: int) -> None:
    """What follows a long request has at most 16 tokens, where a span of others begins."""
    ways = set()
    for layout, call in calls_of(Run, Capture, made=default_run(seed)[: len(EXTREMES)]):
        rows = layout.max_num_reqs if isinstance(call, Capture) else call.batch.reqs
        lengths = np.diff(call.batch.starts)
        mates = (lengths[:-1] > 16) & (lengths[1:] <= 16) & (lengths[1:] > 0)
        if rows * layout.num_groups > 1_024 and mates.any():
            ways.add("capture" if isinstance(call, Capture) else call.method)
    assert {"capture", "prepare_step", SLOTS} <= ways


@pytest.mark.parametrize("seed", SEEDS)
def test_large_batches_own_blocks_and_are_poisoned(seed: int) -> None:
    gathered = set()
    for one in default_run(seed)[: len(EXTREMES)]:
        staged: dict[int, set[int]] = {}
        applied: dict[int, set[int]] = {}
        for call in one.calls:
            if isinstance(call, Stage):
                staged.setdefault(call.table, set()).update(write.row for write in call.writes)
            method = getattr(call, "method", "")
            if isinstance(call, (Apply, Capture)) or method == STEP:
                applied.setdefault(call.table, set()).update(staged.pop(call.table, ()))
            if not isinstance(call, Run) or len(call.batch.rows) <= MANY:
                continue
            rows = call.batch.rows
            if call.poison is None:
                assert call.method == GATHER  # after a captured step nothing may be filled
                continue
            assert call.batch.out is None or len(rows) < 200
            gathered.add((one.theme, call.method))
            mine = [row in applied[call.table] for row in rows.tolist()]
            assert mine[0]
            assert mine[-1]
            assert sum(mine) >= 8
            assert sum(mine[at] for at in edges_of(len(rows))) >= 3
    methods = {method for theme, method in gathered if theme == "1,030 rows"}
    assert methods == {GATHER, SLOTS}


def test_sizes_that_the_code_names_are_tried_with_those_beside_them() -> None:
    """Three numbers, so that a default run has turns for all directions."""
    named = (5, 48, 130)
    made = [scenario(number, sizes=named) for number in range(len(EXTREMES), SCENARIOS)]
    made = [one for one in made if one.theme.endswith("as the code names")]
    runs = [call for _, call in calls_of(Run, made=made)]
    stages = [call for _, call in calls_of(Stage, made=made)]
    reached = {
        "rows": {len(call.batch.rows) for call in runs},
        "tokens": {int(call.batch.starts[-1]) for call in runs},
        "columns": {width for one in made for layout in one.layouts for width in layout.widths},
        "ids": {len(ids) for call in stages for write in call.writes for ids in write.block_ids},
        "groups": {layout.num_groups for one in made for layout in one.layouts},
        "padding": {
            layout.max_num_batched_tokens - int(batch.starts[-1])
            for one in made
            for layout, batch in batches_of(one)
        },
        "writes": {len(call.writes) for call in stages},
        "block size": {size for one in made for lay in one.layouts for size in lay.block_sizes},
    }
    quiet = {call.times for one in made for call in one.calls if isinstance(call, Apply)}
    for size in named:
        for direction, sizes in reached.items():
            if direction == "groups" and size > 40:
                continue
            assert {size, size + 1} <= sizes, (direction, size)
            if direction != "groups" and size < 60:
                assert size - 1 in sizes, (direction, size)
        assert size in quiet


def test_the_default_run_is_cheap() -> None:
    """About how many programs a variant of few launches takes for it."""
    total = 0
    for _, call in calls_of(Stage):
        total += sum(sum(map(bool, write.block_ids)) for write in call.writes)
    for layout, call in calls_of(Run, Capture):
        method, batch = getattr(call, "method", ""), call.batch
        rows = (method != SLOTS) * batch.reqs
        total += layout.num_groups * (rows + (method != GATHER) * (len(batch.rows) + 1))
    assert total < 42_000


def test_deep_begins_with_all_of_a_default_run() -> None:
    """So it finds what that finds."""
    for number in range(0, SCENARIOS, 7):
        assert pickle.dumps(scenario(number)) == pickle.dumps(scenario(number, deep=True))


def test_larger_extremes_come_then() -> None:
    names = [extreme.theme for extreme in LARGER]
    numbers = range(SCENARIOS, SCENARIOS + len(names))
    made = [scenario(number, deep=True) for number in numbers]
    assert [one.theme for one in made] == names
    assert all(map(is_legal, made))
    layouts = [layout for one in made for layout in one.layouts]
    assert max(layout.num_groups for layout in layouts) == 100
    assert max(max(layout.widths) for layout in layouts) == 300_000
    # Then themes go on where a default run has ended.
    assert theme_of(SCENARIOS) == scenario(numbers.stop, deep=True).theme


def test_deep_tries_every_dear_size() -> None:
    """Sizes beyond what a default run can afford; none is taken for one that came before."""
    sizes = (16, 64, 300, 1_024, 2_048)
    named = range(SCENARIOS + len(LARGER), SCENARIOS + len(LARGER) + 105)
    deep = [scenario(number, deep=True, sizes=sizes) for number in named]
    rows = {len(call.batch.rows) for _, call in calls_of(Run, made=deep)}
    writes = {len(call.writes) for _, call in calls_of(Stage, made=deep)}
    for size in (300, 1_024, 2_048):  # of such ones, that or one more
        assert {size, size + 1} & rows, size
        assert {size, size + 1} & writes, size


def test_slots_of_a_caller_have_room_for_more_tokens_than_the_layout() -> None:
    """In all calls that map, just beyond the layout and far."""
    beyond = {
        (call.method, int(call.batch.starts[-1]) - layout.max_num_batched_tokens)
        for layout, call in calls_of(Run)
        if call.batch.has_own_slots
    }
    for method in (SLOTS, BOTH, STEP):
        more = [by for of, by in beyond if of == method and by > 0]
        assert min(more) <= 16, method
        assert max(more) > 1_000, method


def test_a_right_call_comes_before_some_that_are_refused() -> None:
    """So what was checked once, and is remembered, would be taken for right."""
    calls = [call for one in default_run() for call in one.calls]
    before: Counter[str] = Counter()
    for right, wrong in pairwise(calls):
        if isinstance(right, Run) and isinstance(wrong, Refused) and wrong.batch is not None:
            same = np.array_equal(right.batch.positions, wrong.batch.positions)
            before[wrong.method] += same and right.method == wrong.method and not wrong.batch.more
    assert min(before[method] for method in (GATHER, SLOTS, BOTH, STEP)) > 10


def test_a_snapshot_is_taken_of_what_another_put_back() -> None:
    """And put back later, with no write applied since the one before it."""
    found = 0
    for made in default_run():
        for first, back, second in zip(made.calls, made.calls[1:], made.calls[2:], strict=False):
            if isinstance(first, Snapshot) and isinstance(back, Restore) and back.key != first.key:
                found += isinstance(second, Snapshot) and any(
                    isinstance(call, Restore) and call.key == second.key for call in made.calls
                )
    assert found > 1


def test_decoding_replays_in_a_row_and_leaves_a_publication_to_a_step() -> None:
    calls = [call for one in default_run() if one.theme == "decoding" for call in one.calls]
    published = [call for call in calls if isinstance(call, Publish)]
    in_a_row = [
        isinstance(then, Publish) and isinstance(now, Publish) for then, now in pairwise(calls)
    ]
    assert sum(in_a_row) > 10
    assert sum(call.replay is not None and not any(call.rounds) for call in published) > 5
    assert sum(call.step is not None and any(call.rounds) for call in published) > 1


def test_positions_past_int32_are_inside_of_rows_that_ranks_share() -> None:
    """Of the whole row, and of a rank's part of it."""
    most = 0
    for made in default_run():
        for layout, batch in batches_of(made):
            if layout.cp_size > 1 and len(batch.positions):
                room = np.multiply(layout.widths, layout.tokens_per_block).max()
                inside = batch.positions[batch.positions < room]
                most = max(most, int(inside.max(initial=0)) // layout.cp_size)
    assert most >= 2**31


def test_new_tables_get_the_last_call_of_those_before() -> None:
    """So what somebody kept of tables that are gone would be taken for theirs."""
    calls = [call for one in default_run() for call in one.calls]
    found = [
        (staged, run)
        for renewed, staged, run in zip(calls, calls[1:], calls[2:], strict=False)
        if isinstance(renewed, Renew)
    ]
    again = [isinstance(staged, Stage) and isinstance(run, Run) for staged, run in found]
    assert sum(again) > 3


def test_what_waits_is_read_around() -> None:
    """Of wide rows, most of whose blocks are about to be dropped."""
    waiting = [made for made in default_run() if made.theme.startswith("what waits")]
    assert len(waiting) == 3
    for made in waiting:
        ways = {
            (now.method, then.writes[0].overwrite)
            for then, now in pairwise(made.calls)
            if isinstance(then, Stage) and isinstance(now, Run) and now.method != STEP
        }
        assert ways == {(of, fewer) for of in (GATHER, SLOTS, BOTH) for fewer in (True, False)}


def test_what_is_published_waits_for_other_tables() -> None:
    """And a captured step is taken back by the snapshot that was put back before it."""
    calls = [call for one in default_run() for call in one.calls]
    waiting = [call for _, call in calls_of(Publish) if call.meanwhile is not None]
    assert len(waiting) > 3
    assert all(call.meanwhile.table != call.table for call in waiting)
    after = [isinstance(now, Restore) for then, now in pairwise(calls) if isinstance(then, Capture)]
    assert any(after)


def test_groups_share_their_lists() -> None:
    shared = [write for _, call in calls_of(Stage) if call.shared for write in call.writes]
    assert sum(len(write.block_ids) > 1 and len(write.block_ids[0]) > 0 for write in shared) > 20
    assert all(len({*write.block_ids}) == 1 for write in shared)
