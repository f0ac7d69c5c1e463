"""What is found in the folder of kinds, and what is refused there."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
import pytest

from bt_bench.base.errors import UsageError
from bt_bench.protocol import build_workload, default_suite
from bt_bench.suites.block_tables.suite import BlockTableSuite
from bt_bench.suites.block_tables.workloads import (
    BatchParameters,
    SpreadParameters,
    UniformParameters,
    Workload,
    WorkloadParameters,
    kinds,
)
from bt_bench.suites.block_tables.workloads.assemble import layout_of, step_of_requests
from bt_bench.suites.block_tables.workloads.steps import Append


class Growing(WorkloadParameters):
    workload: Literal["growing"]
    steps: int

    def build(self):
        steps = [
            step_of_requests([Append(0, ([n + 1],), overwrite=n == 0)], [0], [[n]])
            for n in range(self.steps)
        ]
        return Workload(layout_of(self), "int64", (), tuple(steps))


def growing(**changes):
    given = {"max_num_reqs": 2, "max_num_batched_tokens": 4, "max_model_len": 64, "steps": 3}
    return Growing(workload="growing", **(given | changes))


class OfTests(BlockTableSuite):
    """The suite with other kinds."""


def suite_of_kinds(*classes):
    suite = OfTests()
    suite.parameters = classes
    return suite


def test_all_kinds_are_found_the_default_first():
    assert list(default_suite().kinds) == ["uniform", "batch", "recorded", "spread", "trace"]
    assert default_suite().kinds["uniform"] is UniformParameters


SIZES = {"max_num_reqs": 256, "max_num_batched_tokens": 8192, "max_model_len": 4096}


@pytest.mark.parametrize(
    ("given", "digest"),
    [
        (
            UniformParameters(requests=4, tokens=10, groups=2, mapping="shuffled", **SIZES),
            "d5523188b71a459d",
        ),
        (UniformParameters(requests=32, tokens=512, **SIZES), "d021422b61c67233"),
        (
            SpreadParameters(
                **{"workload": "spread", "requests": 6, "tokens": 64, "groups": 2},
                **{"spread": "power_law", "writes": "many"},
                **{"max_num_reqs": 64, "max_num_batched_tokens": 512, "max_model_len": 256},
            ),
            "674baa854c729fdd",
        ),
        (
            BatchParameters(
                **{"workload": "batch", "requests": 5, "prefills": 1, "staged_writes": 2},
                **{"groups": 2, "max_num_reqs": 64, "max_model_len": 4096},
            ),
            "bccf93fc3c7c3886",
        ),
    ],
)
def test_a_seed_makes_one_workload_in_all_versions(given, digest):
    """Results are compared with those of other versions by the digest."""
    first, again, other = (
        build_workload(given.model_copy(update={"seed": seed})).digest() for seed in (0, 0, 2)
    )
    assert first[:16] == digest
    assert first == again != other


@pytest.mark.parametrize(
    "given",
    [
        {"workload": "uniform", "requests": 32, "tokens": 512, "max_num_reqs": 256},
        {"workload": "spread", "requests": 6, "tokens": 64, "max_num_reqs": 64},
        {"workload": "batch", "requests": 6, "prefills": 2, "max_num_reqs": 64},
    ],
    ids=lambda given: given["workload"],
)
def test_options_reach_the_workload(given):
    options = {"groups": 3, "disabled_groups": [2], "sliding_window": [0, 9, 9]}
    parameters = default_suite().kinds[given["workload"]](
        **given, **options, dummy_requests=2, custom_outputs=True
    )
    workload = build_workload(parameters)
    (step,) = workload.steps
    assert workload.layout.slot_mapping_enabled == (True, True, False)
    assert workload.layout.reaches == (0, 9, 9)
    assert workload.custom_outputs
    rows, dummies = step.idx_mapping[:-2], step.idx_mapping[-2:]
    assert dummies.tolist() == [-1, -1]
    assert len(rows) == given["requests"] + given.get("prefills", 0)
    assert np.diff(step.query_start_loc)[-2:].tolist() == [1, 1]
    first = step.positions[step.query_start_loc[: len(rows)]]
    assert step.num_computed_tokens[rows].tolist() == first.tolist()
    assert np.count_nonzero(step.num_computed_tokens) == np.count_nonzero(first)
    assert workload.features == parameters.features
    assert len(workload.features) == 4


def test_what_kinds_share_is_none_itself(monkeypatch):
    class _Shared(WorkloadParameters):
        pass

    module = type("module", (), {each.__name__: each for each in (_Shared, Growing)})
    name = f"{kinds.__name__}.somewhere"
    for each in (_Shared, Growing):
        monkeypatch.setattr(each, "__module__", name)
    listed = type("listed", (), {"name": "somewhere"})
    monkeypatch.setattr(kinds.pkgutil, "iter_modules", lambda *_: [listed])
    monkeypatch.setattr(kinds, "import_module", lambda _: module)
    assert kinds.find_kinds() == (Growing,)


def test_what_is_not_a_kind_is_refused():
    class Nameless(WorkloadParameters):
        pass

    class TwoNames(WorkloadParameters):
        workload: Literal["one", "two"]

    class Spaced(WorkloadParameters):
        workload: Literal["a b"]

    class Unbuilt(WorkloadParameters):
        workload: Literal["unbuilt"]

    class Again(Growing):
        pass

    for classes, said in (
        ([Nameless], r"Nameless: workload is <class 'str'>; expected its name"),
        ([TwoNames], "TwoNames: workload is .*'two'.*; expected its name"),
        ([Spaced], "Spaced: workload is .*'a b'.*; expected its name"),
        ([Unbuilt], "Unbuilt has no method build"),
        ([Growing, Again], "Again: workload 'growing' is also in .*Growing; expected a name"),
    ):
        assert re.search(said, "\n".join(suite_of_kinds(*classes).problems()))


def test_several_steps_are_described():
    described = growing().describe()
    assert (described.steps.num_steps, described.requests_served) == (3, 1)
    assert (described.block_allocations, described.peak_blocks_in_use) == (3, 3)
    assert (described.block_reuse, described.steps.share_with_prefill) == (1.0, None)


def test_steps_that_do_not_fit_are_refused():
    assert growing(steps=4).describe().peak_blocks_in_use == 4
    with pytest.raises(UsageError, match=r"row 0 would have \[5\] blocks .* at most \[4\]"):
        growing(steps=5).describe()
    with pytest.raises(UsageError, match="kind 'growing' has no steps"):
        growing(steps=0).describe()


def test_a_batch_of_dummies_is_described():
    class Dummies(Growing):
        def build(self):
            step = step_of_requests([], [-1, -1], [[0], []])
            return Workload(layout_of(self), "int64", (), (step,))

    described = Dummies(**growing().model_dump()).describe()
    assert (described.requests_served, described.steps.row_blocks[0].blocks.max) == (0, 0)
