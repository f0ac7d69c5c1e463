"""Workloads lie on both sides of every size at which the step in one launch goes another way."""

from __future__ import annotations

import pytest
import torch
from support import cuts
from support.variants import classes

from bt_bench.results import ReasonCode
from bt_bench.suites.block_tables.operations import STEP
from bt_bench.suites.block_tables.workloads.conformance.plain import conformance_workloads
from bt_bench.worker.checking.check import check
from bt_kernels import one_launch as sizes
from bt_kernels.one_launch import shapes

WORKLOADS = conformance_workloads(seed=0)


def launches_of(monkeypatch, workloads, *, pinned=False):
    """Return what kernels are given in the steps of workloads, in place of launching any."""
    with cuts.noted_launches(monkeypatch) as noted:
        for workload in workloads:
            tables = classes(["one_launch"])["one_launch"](workload.layout, "cpu")
            if pinned:
                tables._carrying = None
            for append in workload.setup:
                tables.append_block_ids(append.row, append.block_ids, append.overwrite)
            tables._staged.clear()
            for step in workload.steps:
                for append in step.appends:
                    tables.append_block_ids(append.row, append.block_ids, append.overwrite)
                tables.prepare_step(
                    torch.tensor(step.idx_mapping),
                    torch.tensor(step.query_start_loc),
                    torch.tensor(step.positions),
                    step.num_reqs_padded,
                    step.num_tokens_padded,
                )
    return noted


@pytest.fixture
def on_gpu(monkeypatch):
    with cuts.sizes(monkeypatch, cuts.gpu_sizes()):
        yield


@pytest.mark.usefixtures("on_gpu")
def test_every_way_of_a_gpu_is_taken(monkeypatch):
    """By what is carried, rows that share a program, spans, chunks of long rows, and pads."""
    kinds = []
    kind_of = sizes.CarryingLaunch.kind_of
    monkeypatch.setattr(
        sizes.CarryingLaunch,
        "kind_of",
        lambda self, *given: kinds.append(kind_of(self, *given)) or kinds[-1],
    )
    noted = launches_of(monkeypatch, [w for w in WORKLOADS.values() if w.large])
    assert set(kinds) == set(sizes.KINDS)
    assert {launch.programs > 0 for launch in noted} == {True, False}  # too many rows to be told
    carried = [launch for launch in noted if not launch.programs]
    assert {launch.sizes.tile for launch in carried} == {shape.requests for shape in sizes.SHAPES}
    rows = {launch.num_rows * launch.features.groups for launch in carried}
    assert {shapes.MANY_ROWS, shapes.MANY_ROWS + 8} <= rows
    assert any(launch.num_wide and launch.num_chunks == shapes.MAX_CHUNKS for launch in carried)
    assert any(0 < launch.num_chunks < shapes.MAX_CHUNKS for launch in carried)
    spans = {launch.num_spans for launch in carried}
    assert {0, shapes.MAX_SPANS} <= spans
    tokens = [int(launch.starts[-1]) for launch in carried]
    for most in (shapes.FIXED_SPANS, shapes.MAX_SPANS):
        assert {most * shapes.SPAN, most * shapes.SPAN + 1} <= set(tokens)
    pads = {launch.num_slots > shapes.MAX_PADS * shapes.BLOCK for launch in carried}
    assert pads == {True, False}
    requests = [len(launch.starts) - 1 for launch in carried]
    assert min(requests) < shapes.FEW.requests + 1
    words = {launch.num_words for launch in carried}
    for room in (sizes.PAYLOADS.single_ids, sizes.PAYLOADS.few_ids, sizes.PAYLOADS.many_ids):
        assert {room, room + 1} <= words
    longest = {
        len(own)
        for w in WORKLOADS.values()
        for s in w.steps
        for a in s.appends
        for own in a.block_ids
    }
    assert {shapes.MOST_CARRIED, shapes.MOST_CARRIED + 1, 2**16 - 1, 2**16} <= longest


def test_both_shapes_are_taken_in_the_interpreter(monkeypatch):
    noted = launches_of(monkeypatch, [w for w in WORKLOADS.values() if not w.large])
    assert {launch.sizes.tile for launch in noted} == {shape.requests for shape in sizes.SHAPES}
    behind = launches_of(monkeypatch, [WORKLOADS["behind_a_long_request"]])
    assert {launch.sizes.tile for launch in behind} == {shape.requests for shape in sizes.SHAPES}


def test_large_workloads_are_for_a_gpu():
    outcomes = check(classes(["fused"]), WORKLOADS["many_rows"], [STEP], torch.device("cpu"))
    reason = outcomes["fused", STEP].reason
    assert reason.code is ReasonCode.UNSUPPORTED
    assert reason.message == "takes the interpreter minutes; checked on a GPU"
