"""Engines of several processes and instances, without a KV cache, and with captured graphs."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from beside.draw import INTERPRETED, LAYOUTS, NO_GROUPS, ON_GPU, Scheduler, layout_of
from engine_steps.package import engine_package
from engine_steps.session import KINDS, DraftGraph, EngineSession, plugged
from support.in_c import plant
from support.vllm_runner import RELEASE, Step

from bt_kernels.engines import plugin
from bt_kernels.engines.plugin import counting
from bt_kernels.engines.plugin.deferring import DeferringTables

FOLDERS = [Path(folder) for folder in os.environ["TEST_VLLM_SOURCE"].split(os.pathsep) if folder]
WHEELS = [folder for folder in FOLDERS if (folder / f"vllm-{RELEASE}.dist-info").is_dir()]


@pytest.fixture
def module(device):
    """Function that imports modules of a stand-in for vLLM."""
    with engine_package(None) as found:
        yield found
    counting.reset()


def drawn(name, seed=0, limits=INTERPRETED):
    rng = np.random.default_rng((56, seed))
    found = layout_of(rng, name, limits, Counter())
    return found.layout, Scheduler(rng, found, Counter())


def pair(module, layout, device="cpu"):
    """A runner with the plugin, and one without; within `plugged`."""
    runner = module("model_runner").GPUModelRunner
    return runner(layout, device=device), runner(layout, runner.tables_class().theirs, device)


def make_both(both, step):
    found = [[*runner.make(step), *runner.buffers()] for runner in both]
    for mine, other in zip(*found, strict=True):
        assert torch.equal(mine, other) if isinstance(mine, torch.Tensor) else mine == other


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_an_engine_without_groups_makes_all_kinds_of_steps(module, mode):
    """Encoder-only and attention-free models."""
    layout, scheduler = drawn(NO_GROUPS)
    with plugged(mode, 3):
        both = pair(module, layout)
        for kind in KINDS:
            make_both(both, Step(scheduler.schedule(), kind))
        assert type(both[0].block_tables) is type(both[1].block_tables)
        counts = plugin.counters()
    assert (counts["tables"], counts["failures"], counts["launches"]) == (0, 0, 0)


def test_each_rank_of_context_parallelism_has_its_slots(module):
    ranks = INTERPRETED._replace(ranks=True)
    seeds = (seed for seed in range(99) if drawn("qwen3-32b", seed, ranks)[0].cp_size > 1)
    layout, scheduler = drawn("qwen3-32b", next(seeds), ranks)
    with plugged("on", 1):
        both = pair(module, layout)
        for _ in range(3):
            make_both(both, Step(scheduler.schedule()))
        assert plugin.counters()["fused"] == 3


def work(module, rank, found):
    """Make the steps that all ranks make; in the second one ours fails."""
    counting.reset()
    layout, scheduler = drawn("gpt-oss-120b")
    both = pair(module, layout)
    for number in range(4):
        if (rank, number) == (1, 2):
            plant(both[0].block_tables._variant, "prepare_step", None)
        make_both(both, Step(scheduler.schedule()))
    buffers = [buffer.tolist() for buffer in both[0].buffers()]
    is_ours = type(both[0].block_tables) is DeferringTables
    found.put((rank, is_ours, plugin.counters()["failures"], plugin.counters()["pid"], buffers))


@pytest.fixture
def one_thread():
    """Keep a fork from finding a lock taken by a thread of torch."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_of_several_processes_one_falls_back(module):
    """The ranks of tensor parallelism: results stay the same in all."""
    with plugged("on", 1):
        module("model_runner")
        context = multiprocessing.get_context("fork")
        found = context.SimpleQueue()
        processes = [context.Process(target=work, args=(module, rank, found)) for rank in range(3)]
        for process in processes:
            process.start()
        ranks = sorted(found.get() for _ in processes)
        for process in processes:
            process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert [rank[:3] for rank in ranks] == [(0, True, 0), (1, False, 1), (2, True, 0)]
    assert len({rank[3] for rank in ranks}) == 3
    assert ranks[0][4] == ranks[1][4] == ranks[2][4]


def test_after_a_fork_that_cannot_use_cuda_vllms_class_goes_on(module, monkeypatch, caplog):
    """Simulated: the error is torch's, and vLLM's own tables raised none."""

    def fail(*_, **__):
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. Use 'spawn'")

    monkeypatch.setattr(DeferringTables, "__init__", fail)
    layout, scheduler = drawn("gpt-oss-120b")
    with plugged("on", 1):
        both = pair(module, layout)
        assert type(both[0].block_tables) is type(both[1].block_tables)
        make_both(both, Step(scheduler.schedule()))
        assert plugin.counters()["failures"] == 1
    (record,) = caplog.records
    assert "tables were not built (RuntimeError: Cannot re-initialize CUDA" in record.message
    assert "The engine goes on with its own" in record.message


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["gpt-oss-120b", "qwen3-next-80b-mtp2", "deepseek-v4", NO_GROUPS])
@pytest.mark.parametrize("source", ["stand-in", "vLLM's"])
def test_steps_on_a_gpu_are_equal(name, source, device):
    """With vLLM's class, slots of drafts are replays of captured graphs."""
    if source != "stand-in" and not WHEELS:
        pytest.skip(f"needs an unpacked wheel of vLLM {RELEASE}: BT_BENCH_VLLM_SOURCE=DIR")
    wheel = None if source == "stand-in" else WHEELS[0]
    rng = np.random.default_rng((57, LAYOUTS.index(name)))
    found = layout_of(rng, name, ON_GPU._replace(rows=(33,)), Counter())
    with engine_package(wheel) as module:
        runner = module("model_runner").GPUModelRunner
        session = EngineSession(runner, found, device, rng, 60, captures=wheel is not None)
        assert list(session.play()) == []
    counting.reset()


@pytest.mark.gpu
def test_launches_on_a_gpu_are_counted(module, device):
    """By the helpers in C."""
    layout, scheduler = drawn("gpt-oss-120b", limits=ON_GPU._replace(rows=(33,), tokens=(600,)))
    with plugged("on", 1):
        ours, _ = pair(module, layout, device)
        for _ in range(4):
            ours.make(Step(scheduler.schedule()))
        if ours.block_tables.launch_path != "direct":
            pytest.skip("no helpers in C: a step is two launches, or one without writes")
        assert plugin.counters()["launches"] == 4


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_graphs_of_drafts_are_replayed_between_steps(module, mode, device):
    """Captured on ours, or while shadow mode compares; the stand-in makes the same calls."""
    layout, scheduler = drawn("gpt-oss-120b", limits=ON_GPU._replace(rows=(33,), tokens=(600,)))
    with plugged(mode, 1):
        both = pair(module, layout, device)
        make_both(both, Step(scheduler.schedule()))
        if mode == "shadow":
            make_both(both, Step(scheduler.schedule()))  # ours from here on
        assert type(both[0].block_tables) is DeferringTables
        graphs = [
            DraftGraph(runner.block_tables, device, captures=runner is both[0]) for runner in both
        ]
        for _ in range(5):
            batch = scheduler.schedule()
            make_both(both, Step(batch))
            for graph in graphs:
                graph.replay(batch.rows, batch.starts)
            for mine, other in zip(*(runner.buffers() for runner in both), strict=True):
                assert torch.equal(mine, other)
        counts = plugin.counters()
        assert (counts["failures"], counts["differences"]) == (0, 0)
