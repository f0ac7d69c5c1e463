"""Graphs of interpreted kernels: replays read what tensors hold by then."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

import pytest
import torch
import triton
import triton.language as tl

from bt_bench.worker.checking.interpreted_graph import InterpretedGraph

pytestmark = pytest.mark.usefixtures("device")


@triton.jit
def _add_kernel(target, source, count, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < count
    tl.store(target + at, tl.load(target + at, mask=mask) + tl.load(source + at, mask), mask=mask)


def add(target, source, count=3):
    _add_kernel[1,](target, source, count, BLOCK=4)


def tensors():
    return torch.zeros(4, dtype=torch.int32), torch.tensor([1, 2, 3, 4], dtype=torch.int32)


def test_launches_come_again_in_order_on_what_is_there_then():
    target, source = tensors()
    graph = InterpretedGraph()
    with graph.capture():
        add(target, source)
        add(source, target, 1)
    assert graph.is_whole
    assert (target.tolist(), source.tolist()) == ([1, 2, 3, 0], [2, 2, 3, 4])
    source[:] = torch.tensor([10, 20, 30, 40])
    graph.replay()
    assert (target.tolist(), source.tolist()) == ([11, 22, 33, 0], [21, 20, 30, 40])


def test_nothing_is_recorded_behind_the_block():
    target, source = tensors()
    graph = InterpretedGraph()
    with suppress(RuntimeError), graph.capture():
        add(target, source)
        raise RuntimeError
    add(target, source)
    graph.replay()
    assert target.tolist() == [3, 6, 9, 0]


@pytest.mark.parametrize("compute", [lambda one: one.add_(1), lambda one: one.sum(), torch.clone])
def test_what_torch_computes_is_told(compute):
    target, _ = tensors()
    graph = InterpretedGraph()
    with graph.capture():
        compute(target)
    assert not graph.is_whole


def test_threads_may_compute():
    target, _ = tensors()
    graph = InterpretedGraph()
    with graph.capture():
        worker = Thread(target=target.add_, args=(1,))
        worker.start()
        worker.join()
    assert not graph.is_whole
    assert target.tolist() == [1, 1, 1, 1]


def test_views_are_no_computations():
    target, source = tensors()
    graph = InterpretedGraph()
    with graph.capture():
        add(target.view(2, 2)[0], source[:2].detach(), 2)
    assert graph.is_whole
