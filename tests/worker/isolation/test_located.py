"""Where an exception was raised, in terms of the user's own files."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
import torch

from bt_bench.worker.isolation.located import ONLY_INTERPRETED, place_of, summary_of
from bt_bench.worker.tasks.failures import on_failure, reason_of

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


# Lines of a kernel, and whether only the interpreter rejects them.
IDIOMS = {
    "tl.inline_asm_elementwise('', '=r,r', [x], dtype=tl.int32, is_pure=True, pack=1)": True,
    "tl.extra.cuda.globaltimer()": True,
    "tl.map_elementwise(kernel, x)": True,
    "x + missing": False,
    "missing_attribute.of_a_name": False,
    "x + tl.arange(0, 16)": False,
    "x.missing": False,
    "tl.arange(0, 8, 3)": False,
    "raises(x)": False,
}


@pytest.mark.parametrize("idiom", IDIOMS)
def test_what_only_the_interpreter_rejects_is_said_to_be_so(tmp_path, idiom):
    path = tmp_path / "idiom.py"
    path.write_text(
        "import triton\nimport triton.language as tl\n"
        "def raises(x):\n    raise NotImplementedError('of my own')\n"
        "@triton.jit\ndef kernel(p):\n    x = tl.load(p + tl.arange(0, 8))\n"
        f"    {idiom}\n"
    )
    spec = importlib.util.spec_from_file_location("idiom", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    summary = summary_of(raised_by(module.kernel[(1,)], torch.zeros(8, dtype=torch.int32)))
    assert summary.startswith(ONLY_INTERPRETED) == IDIOMS[idiom], summary


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
    monkeypatch.setattr("bt_bench.worker.tasks.failures._tell", None)
    on_failure(told.append)
    error = raised_by(mine.on_host, [1])
    reason_of(error, "here")
    assert told == [error]


def test_an_error_that_was_never_raised_has_no_place():
    assert place_of(ValueError("x")) is None
    assert reason_of(ValueError("x"), "here").message == "here: ValueError: x"


def test_an_error_without_text_is_its_type():
    assert summary_of(AssertionError()) == "AssertionError"
