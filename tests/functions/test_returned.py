"""Results of callables that `bench` times, each as it was when its function returned."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
import torch

from bt_bench.errors import UsageError
from bt_bench.functions.returned import compare_first_calls

NAN = float("nan")
OUT = torch.zeros(2)
SHARED = torch.zeros(2)
SPARSE = torch.eye(2).to_sparse()
RAGGED = [OUT, torch.zeros(3)]


def told(one, other):
    functions = {"a": one if callable(one) else lambda: one, "b": lambda: other}
    if callable(other):
        functions["b"] = other
    text = compare_first_calls(functions, lambda: None)
    return text.replace(", in the first call", "").removeprefix("Results differ: b's ")


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (lambda: SHARED.fill_(1), lambda: SHARED.fill_(2), "differ from a's by up to 1."),
        (torch.tensor([NAN]), torch.tensor([NAN]), "All returned the same, bit for bit."),
        (torch.tensor([NAN, 1]), torch.ones(2), "differ from a's, also in NaN or infinity."),
        (torch.zeros(1), -torch.zeros(1), "differ from a's in bits alone, as 0.0 does from -0.0."),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 2j]), "differ from a's by up to 1."),
        (torch.tensor([2**60]), torch.tensor([2**60 + 1]), "differ from a's by up to 1."),
        ({"x": [OUT, 1]}, {"x": [OUT, 2]}, "differ from a's: 2 in place of 1."),
        ({"x": OUT}, {"y": OUT}, "have other shapes or dtypes than a's."),
        ({"x": OUT}, {"x": OUT.clone()}, "All returned the same, bit for bit."),
        (
            SPARSE,
            SPARSE,
            "Results were not compared: a returns a Tensor of layout torch.sparse_coo",
        ),
        (
            (OUT, SPARSE),
            (OUT, SPARSE),
            "All returned the same, bit for bit. Not compared: a Tensor",
        ),
        (SPARSE, SPARSE.to_dense(), "Results were not compared: a returns a Tensor of layout"),
        (SPARSE.to_dense(), SPARSE, "have other shapes or dtypes than a's. Not compared: a Tensor"),
        (
            (OUT, torch.nested.as_nested_tensor(RAGGED, layout=torch.jagged)),
            (OUT, torch.nested.as_nested_tensor(RAGGED, layout=torch.jagged)),
            "All returned the same, bit for bit. Not compared: a NestedTensor of layout",
        ),
        (
            torch.tensor([1], dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
            torch.tensor([2], dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
            "differ from a's.",
        ),
    ],
)
def test_how_results_compare(one, other, text):
    assert told(one, other).startswith(text)


def test_results_that_are_too_large_to_be_subtracted_differ_all_the_same(monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch, "where", full)
    assert told(OUT, OUT + 1) == "differ from a's."


async def coroutine():
    return OUT


def generator():
    yield OUT


async def generator_of_coroutines():
    yield OUT


@pytest.mark.parametrize("function", [coroutine, generator, generator_of_coroutines, Future])
def test_a_function_whose_work_is_not_done_when_it_returns_is_refused(function, recwarn):
    with pytest.raises(UsageError, match="its work is not done when it returns"):
        told(lambda: OUT, function)
    assert not recwarn.list
