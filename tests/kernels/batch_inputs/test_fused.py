"""Batches that are prepared in one launch equal the reference's, whatever the launch carries."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from support.batches import Counting, play, workloads_of

from bt_bench.suites.batch_preparation.workloads.conformance import (
    CORNERS,
    Engine,
    workload_of,
)
from bt_kernels import launches
from bt_kernels.batch_inputs import InputLayout, carried
from bt_kernels.batch_inputs.carried import CarriedInputs
from bt_kernels.batch_inputs.fused import FusedInputs, OneLaunchInputs
from bt_kernels.one_launch import KINDS, SHAPES

BOTH = [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.gpu)]
VARIANTS = (FusedInputs, OneLaunchInputs)
LARGE = Engine(
    max_num_reqs=300,
    max_num_tokens=4096,
    max_model_len=4096,
    block_sizes=(16, 64),
    reaches=(0, 200),
    drafts=3,
    lookahead=2,
    prompt=700,
    repeats=True,
    num_steps=12,
)


def of_a_few_steps(name, device, seed=3):
    engine = CORNERS[name]
    steps = 2 if device == "cpu" else engine.num_steps
    return workload_of(replace(engine, num_steps=steps), np.random.default_rng(seed))


@pytest.mark.parametrize("device", BOTH)
@pytest.mark.parametrize(
    "name", ["drafts, lookahead, two groups", "no token of its own", "rows twice"]
)
def test_a_whole_step_is_as_the_references(name, device):
    variant = play(OneLaunchInputs, of_a_few_steps(name, device), ("prepare",), device)
    assert not variant.fallbacks


@pytest.mark.parametrize("device", BOTH)
def test_inputs_alone_are_as_the_references(device):
    workload = of_a_few_steps("drafts and prompt tails", device)
    assert not play(FusedInputs, workload, ("inputs",), device).fallbacks


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("path", [("inputs",), ("prepare",)])
def test_random_workloads(variant, path, seed):
    for workload in workloads_of(seed):
        assert not play(variant, workload, path, "cpu").fallbacks


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("path", [("inputs",), ("prepare",)])
def test_random_workloads_on_a_gpu(variant, path, seed):
    large = workload_of(LARGE, np.random.default_rng(seed))
    for workload in (*workloads_of(seed), large):
        assert not play(variant, workload, path, "cuda").fallbacks


def test_there_is_one_launch():
    for variant in VARIANTS:
        assert Counting(variant).prepare(3, inputs_only=True)[1] == 1
    made = Counting()
    made.variant.append_block_ids(1, [[7, 8]], True)
    assert made.prepare(3)[1] == 1


def test_a_step_without_drafts_has_constant_outputs():
    """Holds that outputs which are the same in each such step are not written or allocated."""
    made = Counting()
    first, second = (made.prepare(3)[0] for _ in range(2))
    for name in ("cu_num_logits", "expanded_local_pos", "logits_indices"):
        assert getattr(first, name).data_ptr() == getattr(second, name).data_ptr()
    assert first.idx_mapping.data_ptr() != second.idx_mapping.data_ptr()
    assert first.expanded_idx_mapping is first.idx_mapping


def test_more_requests_than_a_launch_has_parameters_for_are_counted(monkeypatch):
    monkeypatch.setattr(carried, "MOST_REQUESTS", 4)
    monkeypatch.setattr("bt_kernels.batch_inputs.fused.MOST_REQUESTS", 4)
    monkeypatch.setattr(carried, "ROOMS_INTERPRETED", (2, 4))
    made = Counting()
    assert made.prepare(4)[1] == 1
    assert not made.variant.fallbacks
    assert made.prepare(5)[1] > 1
    assert made.variant.fallbacks == {"more than 4 requests": 1}
    made.prepare(5, inputs_only=True)
    assert made.variant.fallbacks == {"more than 4 requests": 2}


@pytest.mark.parametrize("inputs_too", [False, True])
def test_a_batch_that_no_launch_carries_is_counted_once(monkeypatch, inputs_too):
    made = Counting()
    monkeypatch.setattr(made.variant._carried, "run", lambda *_: False)
    if inputs_too:
        monkeypatch.setattr(made.variant._carried, "run_alone", lambda *_: False)
    assert made.prepare(3)[1] > 1
    assert made.variant.fallbacks.total() == 1


def test_where_no_launch_can_carry_a_batch_a_warning_says_why(monkeypatch):
    monkeypatch.setattr(CarriedInputs, "why_not", staticmethod(lambda *_: "it is Sunday"))
    with pytest.warns(UserWarning, match="batches take several launches: it is Sunday"):
        made = Counting()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # but not in every step
        assert made.prepare(3)[1] > 1
    assert made.variant.fallbacks == {"it is Sunday": 1}


def test_a_layout_that_no_word_can_tell_is_refused_with_its_limit():
    made = Counting()
    layout = InputLayout(6, 1 << 27, 64)
    why = CarriedInputs.why_not(made.variant.tables, layout)
    assert why == "max_num_tokens is 134217728; expected below 134217728"


def test_binaries_are_those_that_steps_take():
    made = Counting(num_reqs=40, num_tokens=40)
    assert launches.COMPILES or made.variant._carried is not None
    known = made.variant._carried.binaries(aligned=made.variant.tables.rows_are_aligned)
    assert len(set(known)) == len(known)
    taken = []
    made.variant._carried._has = lambda binary: bool(taken.append(binary)) or True
    made.variant._carried._launch = lambda *_: None
    rng = np.random.default_rng(0)
    for _ in range(200):
        num_reqs = int(rng.integers(1, 41))
        most = int(rng.choice((2, 4, 15)))
        for row in rng.permutation(40)[: rng.choice((0, 1, 2, 12))]:
            made.variant.append_block_ids(int(row), [[3] * int(rng.integers(0, most))], True)
        made.prepare(num_reqs, inputs_only=rng.random() < 0.2)
    assert set(taken) <= set(known)
    assert {binary.kind for binary in taken} == {carried.INPUTS_ALONE, *KINDS}
    assert {binary.room for binary in taken} == set(carried.ROOMS_INTERPRETED)
    assert {binary.shape for binary in taken} == set(SHAPES)
