"""Triton's language is prepared once per launch and module, and kernels compute the same."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from bt_bench.worker.interpreter import prepare_language_once


@triton.jit
def doubled(value):
    return value * 2


@triton.jit
def doubling_kernel(values, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    # `cdiv` lies in a module of Triton's own.
    tl.store(values + places, doubled(tl.load(values + places)) + tl.cdiv(3, 2))


@pytest.fixture
def searches(monkeypatch):
    """Functions before which Triton's own preparation ran."""
    found = []
    prepare = interpreter._patch_lang
    # As it is before anything was replaced, whatever other tests have done.
    original = getattr(prepare, "original", prepare)
    launch = getattr(prepare, "launch", interpreter.GridExecutor.__call__)

    def noted(function):
        found.append(function.__name__)
        return original(function)

    monkeypatch.setattr(interpreter, "_patch_lang", noted)
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", launch)
    return found


def launched():
    values = torch.arange(8, dtype=torch.int32)
    doubling_kernel[(2,)](values, 4)
    return values.tolist()


def test_the_search_runs_once_per_module(searches):
    expected = [2 * value + 2 for value in range(8)]
    assert launched() == expected
    before = len(searches)
    assert before == 1 + 2 * 2  # the kernel, and two functions in each of two programs
    searches.clear()
    prepare_language_once()
    assert launched() == expected
    assert searches == ["doubling_kernel", "cdiv"]
    assert launched() == expected  # each launch restores the language, and prepares it anew
    assert len(searches) == 4


def test_twice_is_the_same_as_once(searches):
    prepare_language_once()
    once = interpreter._patch_lang
    prepare_language_once()
    assert interpreter._patch_lang is once


def test_another_interpreter_is_left_alone(monkeypatch):
    monkeypatch.delattr(interpreter, "_patch_lang")
    prepare_language_once()
    assert not hasattr(interpreter, "_patch_lang")


def test_types_are_those_that_the_interpreter_finds(monkeypatch):
    scalars = [tl.int1, tl.int32, tl.uint64, tl.float32, tl.bfloat16, tl.pointer_type(tl.int64)]
    types = scalars + [tl.block_type(type_, [4]) for type_ in scalars]
    monkeypatch.setattr(interpreter, "_patch_lang", lambda function: None)
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", lambda self: None)
    found = interpreter._get_np_dtype
    monkeypatch.setattr(interpreter, "_get_np_dtype", found)  # put back afterwards
    before = [found(type_) for type_ in types]
    prepare_language_once()
    assert interpreter._get_np_dtype is not found
    assert [interpreter._get_np_dtype(type_) for type_ in types] == before
