"""Triton's language is prepared once per launch and module, and kernels compute the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

from bt_bench.worker.machine.interpreter import speed_up_interpreter


@triton.jit
def doubled(value):
    return value * 2


@triton.jit
def doubling_kernel(values, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    # `cdiv` lies in a module of Triton's own.
    tl.store(values + places, doubled(tl.load(values + places)) + tl.cdiv(3, 2))


@triton.jit
def sum_kernel(values, others):
    place = tl.program_id(0)
    tl.store(values + place, tl.load(values + place) + tl.load(others + place))


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
    speed_up_interpreter()
    assert launched() == expected
    assert searches == ["doubling_kernel", "cdiv"]
    builtin = tl.load
    assert launched() == expected  # each launch replaces the same, and restores it
    assert tl.load is builtin
    assert searches == ["doubling_kernel", "cdiv"]


def test_twice_is_the_same_as_once(searches):
    speed_up_interpreter()
    once = interpreter._patch_lang
    speed_up_interpreter()
    assert interpreter._patch_lang is once


def test_another_interpreter_is_left_alone(monkeypatch):
    monkeypatch.delattr(interpreter, "_patch_lang")
    speed_up_interpreter()
    assert not hasattr(interpreter, "_patch_lang")


def test_types_are_those_that_the_interpreter_finds(monkeypatch):
    scalars = [tl.int1, tl.int32, tl.uint64, tl.float32, tl.bfloat16, tl.pointer_type(tl.int64)]
    types = scalars + [tl.block_type(type_, [4]) for type_ in scalars]
    monkeypatch.setattr(interpreter, "_patch_lang", lambda function: None)
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", lambda self: None)
    found = interpreter._get_np_dtype
    monkeypatch.setattr(interpreter, "_get_np_dtype", found)  # put back afterwards
    before = [found(type_) for type_ in types]
    speed_up_interpreter()
    assert interpreter._get_np_dtype is not found
    assert [interpreter._get_np_dtype(type_) for type_ in types] == before


def test_an_overflow_is_found_in_debug(monkeypatch):
    speed_up_interpreter()
    values = torch.tensor([2**31 - 1], dtype=torch.int32)
    ones = torch.ones(1, dtype=torch.int32)
    compared = []
    compare = TritonSemantic.and_
    monkeypatch.setattr(TritonSemantic, "and_", lambda *a: compared.append(a) or compare(*a))
    sum_kernel[(1,)](values, ones)
    assert values.tolist() == [-(2**31)]
    assert compared == []
    debug = replace(interpreter.interpreter_builder.options, debug=True)
    monkeypatch.setattr(interpreter.interpreter_builder, "options", debug)
    with pytest.raises(interpreter.InterpreterError, match="overflow detected for operation add"):
        sum_kernel[(1,)](values, -ones)
