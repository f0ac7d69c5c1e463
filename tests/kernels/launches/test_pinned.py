"""Prove pinned memory once for each device; warn loudly where it fails."""

from __future__ import annotations

import warnings

import pytest
import torch
from support.stale_memory import CACHED, LOST, MODES, STALE, StaleMemory

from bt_kernels.launches import pinned, why_not_pinned

WRONG = {
    STALE: "a kernel read 0x0 where the host had written 0x1234567",
    CACHED: "a kernel read 0x1234567 where the host had written 0x2468ace",
    LOST: "the host read 0x0 where a kernel had written 0x7654321",
}


def test_memory_that_works_is_silent(device, monkeypatch):
    monkeypatch.setattr(pinned, "_OUTCOMES", {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert why_not_pinned(device) is None


@pytest.mark.parametrize("mode", MODES)
def test_memory_that_a_device_does_not_see_is_named(mode, device, monkeypatch):
    StaleMemory(monkeypatch, mode)
    with pytest.warns(RuntimeWarning, match=rf"cpu \(the interpreter\): {WRONG[mode]}\. Staged"):
        assert why_not_pinned(device) == WRONG[mode]


def test_it_is_found_out_once_for_each_device(device, monkeypatch):
    memory = StaleMemory(monkeypatch)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = [why_not_pinned(device) for _ in range(3)]
    assert found == [WRONG[STALE]] * 3
    assert (len(warned), memory.replaced) == (1, 1), "the first launch of a probe shows it"


def test_memory_that_cannot_be_allocated_is_not_used(device, monkeypatch):
    def refuse(*_, **options):
        raise RuntimeError("no pinned memory today\nand more")

    monkeypatch.setattr(pinned, "_OUTCOMES", {})
    monkeypatch.setattr(torch, "zeros", refuse)
    with pytest.warns(
        RuntimeWarning, match="none can be allocated: no pinned memory today. Staged"
    ):
        assert why_not_pinned(device) == "none can be allocated: no pinned memory today"


def test_where_nothing_is_launched_nothing_is_probed(device, monkeypatch):
    monkeypatch.setattr(pinned, "_OUTCOMES", {})
    monkeypatch.setattr(pinned, "COMPILES", True)
    monkeypatch.setattr(pinned, "launch_jit", None)
    assert why_not_pinned(device) is None


@pytest.mark.gpu
def test_memory_of_a_gpu_works(device, monkeypatch):
    monkeypatch.setattr(pinned, "_OUTCOMES", {})
    assert why_not_pinned(device) is None
