"""Where an exception was raised, in terms of the user's own files."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
import torch

from bt_bench.worker.failures import on_failure, reason_of
from bt_bench.worker.located import place_of, summary_of

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def doubled(x):
    return x * missing

@triton.jit
def outer_kernel(out):
    y = doubled(tl.load(out))
    tl.store(out, y)

def launch(out):
    outer_kernel[(1,)](out)

def on_host(values):
    return sorted(values, key=lambda value: value.nothing)
"""


@pytest.fixture
def mine(tmp_path) -> ModuleType:
    path = tmp_path / "mine.py"
    path.write_text(KERNELS)
    spec = importlib.util.spec_from_file_location("mine", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def raised_by(call, *arguments) -> Exception:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # whatever it is
        call(*arguments)
    return raised.value


def test_an_error_in_an_interpreted_function_of_a_kernel_is_at_its_own_line(mine):
    """Triton wraps it once for each call, and names a file of its own."""
    error = raised_by(mine.launch, torch.zeros(1))
    assert type(error).__name__ == "InterpreterError"
    assert str(place_of(error)) == "mine.py:7, in doubled: `return x * missing`"
    assert summary_of(error) == "NameError: name 'missing' is not defined"


def test_a_reason_has_the_line_and_not_the_wrapping(mine):
    reason = reason_of(raised_by(mine.launch, torch.zeros(1)), "while measured")
    assert reason.code == "raised"
    assert reason.message == (
        "while measured: NameError: name 'missing' is not defined "
        "(mine.py:7, in doubled: `return x * missing`)"
    )


def test_an_error_within_a_library_is_at_the_line_that_called_it(mine):
    place = place_of(raised_by(torch.ones(2).__class__.view, torch.ones(2), 3))
    assert place is not None
    assert place.path.name == "test_located.py"
    error = raised_by(mine.on_host, [1])
    assert str(place_of(error)) == (
        "mine.py:18: `return sorted(values, key=lambda value: value.nothing)`"
    )


def test_who_asked_for_failures_gets_the_exception(mine, monkeypatch):
    told: list[BaseException] = []
    monkeypatch.setattr("bt_bench.worker.failures._tell", None)
    on_failure(told.append)
    error = raised_by(mine.on_host, [1])
    reason_of(error, "here")
    assert told == [error]


def test_an_error_that_was_never_raised_has_no_place():
    assert place_of(ValueError("x")) is None
    assert reason_of(ValueError("x"), "here").message == "here: ValueError: x"


def test_an_error_without_text_is_its_type():
    assert summary_of(AssertionError()) == "AssertionError"
