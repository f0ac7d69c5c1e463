"""Whole tensors of every kind: filled with garbage, and compared with the reference's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bt_bench.protocol import Floats, MismatchError
from bt_bench.worker.checking.comparing import same_bits
from bt_bench.worker.checking.plain_trial import compare, fill

NAN = float("nan")


def packed(*values):
    return torch.tensor(values, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)


def complex_ones(*parts):
    return torch.view_as_complex(torch.tensor([parts]))


@pytest.mark.parametrize(
    ("found", "wanted", "told"),
    [
        (torch.tensor([True, False]), torch.tensor([True, True]), "out[1] is False, expected True"),
        (torch.tensor([1, 1]), torch.tensor([True, True]), "has dtype torch.int64"),
        (torch.tensor([1.0]), torch.tensor([1.0 + 0j]), "has dtype torch.float32"),
        (complex_ones(1.0, 2.0), complex_ones(1.0, 3.0), "parts)[0, 1] is 2.0, expected 3.0"),
        (packed(17, 3), packed(17, 4), "out (bytes of two numbers)[1] is 3, expected 4"),
        (packed(7), packed(4), "[0] is 7, expected 4 (never written by the variant)"),
        (torch.tensor([-0.0]), torch.tensor([0.0]), "out[0] is -0.0, expected 0.0; 1 of 1"),
        (torch.tensor([NAN]), torch.tensor([0.0]), "out[0] is nan, expected 0.0"),
    ],
)
def test_a_difference_of_any_kind_is_named(found, wanted, told):
    with pytest.raises(MismatchError) as caught:
        compare("out", found, wanted, 7, None)
    assert told in str(caught.value)
    assert "went on" not in str(caught.value)


@pytest.mark.parametrize(
    "each",
    [
        *(torch.tensor([True, False]), torch.tensor([NAN, 1.0]), torch.tensor([-0.0])),
        *(complex_ones(NAN, -0.0), torch.tensor([1.0]).to(torch.float8_e4m3fn)),
        torch.tensor(1.0).expand(1),  # whose stride is 0
        packed(17, 255),
    ],
)
def test_a_copy_is_equal(each):
    compare("out", each.clone(), each, 7, None)
    assert same_bits(each.clone(), each)
    assert not same_bits(torch.zeros_like(each), each)
    assert not same_bits(each.clone().unsqueeze_(0), each), "a call can do this to its argument"


def test_a_tolerance_allows_the_other_zero_and_holds_for_both_parts():
    compare("out", torch.tensor([-0.0]), torch.tensor([0.0]), 7, (0.0, 1e-30))
    compare("out", complex_ones(1.0, 2.0), complex_ones(1.001, 2.001), 7, (1e-2, 0.0))
    with pytest.raises(MismatchError, match=r"within 0\.01 of its"):
        compare("out", complex_ones(1.0, 2.0), complex_ones(1.0, 2.1), 7, (1e-2, 0.0))


def test_packed_numbers_and_both_parts_of_complex_ones_are_filled():
    out, packs = torch.zeros(3, dtype=torch.complex64), packed(0, 0)
    fill({"out": out, "packed": packs}, 5)
    assert (packs.view(torch.uint8) == 5).all()
    assert (out.real != 0).all()
    assert (out.imag != 0).all()
    with pytest.raises(MismatchError, match="never written by the variant"):
        compare("out", out, torch.zeros_like(out), 5, None)


def test_explored_floats_tell_zeros_apart():
    zeros = np.array([-0.0, 0.0])
    assert list(Floats(np.zeros(2)).off(zeros)) == [True, False]
    assert not Floats(np.zeros(2), absolute=1e-30).off(zeros).any()
