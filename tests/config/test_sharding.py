"""The division of a sweep into shards."""

from __future__ import annotations

import random
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.shards import seconds_of, spec_of

from bt_bench.base.errors import UsageError
from bt_bench.config.sharding import case_digests, divide, parse_shard
from bt_bench.config.spec import CaseSpec
from bt_bench.protocol import WorkloadParameters
from bt_bench.results import Timing
from bt_bench.suites.block_tables.workloads.kinds.trace import TraceParameters

NAMES = st.lists(st.text("abc_123", min_size=1, max_size=6), unique=True, max_size=8)


@pytest.mark.parametrize(("text", "pair"), [("1/1", (1, 1)), (" 3/16 ", (3, 16))])
def test_a_shard_is_read(text, pair):
    assert parse_shard(text) == pair


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "1/0", "-1/4", "1/4/2", "a/b", "1/200000"])
def test_anything_else_is_refused(text):
    with pytest.raises(UsageError, match="expected K/N"):
        parse_shard(text)


@settings(max_examples=20)
@given(names=NAMES, count=st.integers(1, 6), balanced=st.booleans(), seed=st.integers(0, 99))
def test_shards_are_disjoint_and_cover_everything_whatever_the_order(names, count, balanced, seed):
    spec = spec_of(names)
    timing = Timing("run", seconds_of(names)) if balanced and names else None
    divided = [divide(spec, index, count, timing) for index in range(1, count + 1)]
    taken = [case.name for own, _ in divided for case in own.cases]
    assert sorted(taken) == sorted(names)
    assert len({division.digest for _, division in divided}) == 1
    assert all([c.name for c in own.cases] == division.own for own, division in divided)
    shuffled = spec.model_copy(
        update={"cases": random.Random(seed).sample(spec.cases, len(spec.cases))}
    )
    for index, (own, _) in enumerate(divided, start=1):
        again, _ = divide(shuffled, index, count, timing)
        assert {case.name for case in again.cases} == {case.name for case in own.cases}


class OwnParameters(WorkloadParameters):
    """Parameters that no other change of bt-bench touches."""

    workload: Literal["own"] = "own"
    size: int

    def build(self):
        pytest.fail("a shard is chosen without building any workload")


def test_the_hash_is_the_same_on_all_machines_and_without_other_cases():
    cases = [CaseSpec(name=name, parameters=OwnParameters(size=7)) for name in "abcdef"]
    spec = spec_of([], cases=cases)
    shards = {case.name: case.shard for case in divide(spec, 1, 3)[1].cases}
    # Written down once: a change would divide sweeps that are under way in another way.
    assert shards == {"a": 2, "b": 2, "c": 2, "d": 3, "e": 3, "f": 2}
    alone = spec.model_copy(update={"cases": spec.cases[3:4]})
    assert divide(alone, 1, 3)[1].cases[0].shard == shards["d"]


def test_the_longest_cases_are_given_out_first():
    seconds = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 10.0, "e": 4.0}
    _, division = divide(spec_of([*seconds]), 1, 2, Timing("run", seconds))
    of_shard = {1: 0.0, 2: 0.0}
    for case in division.cases:
        of_shard[case.shard] += seconds[case.name]
    assert of_shard == {1: 10.0, 2: 10.0}
    assert division.shard.balance == "run"


def test_a_case_without_seconds_counts_as_a_typical_one():
    timing = Timing("run", {"a": 5.0, "b": 1.0, "c": 3.0})
    _, division = divide(spec_of(["a", "b", "c", "new"]), 1, 2, timing)
    by_name = {case.name: case.shard for case in division.cases}
    # a: 5 to the first; c and new: 3 each to the second, then b to the first.
    assert by_name["a"] == by_name["b"] != by_name["c"] == by_name["new"]


def test_a_run_of_other_cases_cannot_balance():
    with pytest.raises(UsageError, match="run other has times of none of the 2 cases"):
        divide(spec_of(["a", "b"]), 1, 2, Timing("other", {"x": 1.0}))


def test_files_count_by_their_contents_wherever_they_are(tmp_path):
    digests = []
    for place, text in (("here", "one"), ("there", "one"), ("elsewhere", "two")):
        (tmp_path / place).mkdir()
        path = tmp_path / place / f"{place}.csv"
        path.write_text(text)
        parameters = TraceParameters.model_construct(workload="trace", trace=str(path))
        digests += case_digests([CaseSpec.model_construct(name="a", parameters=parameters)])
    assert digests[0] == digests[1] != digests[2]


def test_a_file_that_is_gone_is_named(tmp_path):
    parameters = TraceParameters.model_construct(workload="trace", trace=str(tmp_path / "gone"))
    with pytest.raises(UsageError, match=r"case 'a': cannot read .*gone: No such file"):
        case_digests([CaseSpec.model_construct(name="a", parameters=parameters)])
