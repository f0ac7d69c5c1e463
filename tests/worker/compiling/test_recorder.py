"""What a sequence of launches is a digest of."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bt_bench.analysis.code.ptxas import Usage
from bt_bench.worker.compiling.driver import Launch
from bt_bench.worker.compiling.recorder import LEAST_ADDRESS, LaunchWindow, number_addresses


def sequence(**changed):
    fields = {
        "kernel": "kernel",
        "binary": "0" * 16,
        "signature": "x: *i64",
        "settings": (4,),
        "shared_bytes": 0,
        "grid": (1, 2, 3),
        "arguments": (torch.arange(6).view(2, 3), 7, None, (1.5, "text")),
    }
    window = LaunchWindow("sm_90")
    window.begin_step()
    window.launched(Launch(**(fields | changed)), Usage(32, 0, 0))
    return window.sequence


def test_equal_launches_are_equal():
    assert sequence() == sequence()


@pytest.mark.parametrize(
    "changed",
    [
        {"grid": (1, 2, 4)},
        {"binary": "1" * 16},
        {"settings": (8,)},
        {"arguments": (torch.arange(6).view(2, 3), 8, None, (1.5, "text"))},
        {"arguments": (torch.arange(6).view(3, 2), 7, None, (1.5, "text"))},
        {"arguments": (torch.arange(6).view(2, 3) + 1, 7, None, (1.5, "text"))},
        {"arguments": (torch.arange(6).int().view(2, 3), 7, None, (1.5, "text"))},
    ],
)
def test_what_counts(changed):
    assert sequence(**changed) != sequence()


def test_addresses_are_found_whatever_else_the_memory_is_seen_as():
    """`one_launch` gives its kernel the descriptors as they are, and as int32 beside them."""

    def seen(*values, length=None):
        described = torch.tensor(values)
        as_int32 = described.view(torch.int32)
        return sequence(arguments=(as_int32[:length], (described, as_int32[::2])))

    here, there = LEAST_ADDRESS + 4096, LEAST_ADDRESS + 512
    assert seen(here, 3) == seen(there, 3)
    assert seen(here, 3) != seen(here, 4)
    assert seen(here, 3) != seen(here, 3, length=2)
    # Of int32 values alone, two beside each other are not an address.
    pair = torch.tensor([here]).view(torch.int32).tolist()
    alone = [
        sequence(arguments=(torch.tensor([low, pair[1]], dtype=torch.int32),)) for low in (1, 2)
    ]
    assert alone[0] != alone[1]


def test_memory_need_not_end_at_a_word():
    memory = torch.arange(3, dtype=torch.int32)
    word = memory[:2].view(torch.int64)
    before = sequence(arguments=(word,))
    memory[2] += 1
    assert sequence(arguments=(word,)) != before


def test_addresses_count_by_which_are_equal():
    def numbered(*values):
        return number_addresses(np.array(values, dtype=np.int64)).tolist()

    here, there = LEAST_ADDRESS + 4096, LEAST_ADDRESS + 512
    assert numbered(here, 3, there, here) == numbered(there, 3, here, there)
    assert numbered(here, 3, there, here) != numbered(here, 3, there, there)
    assert numbered(here, 3) != numbered(here, 4)
    assert numbered(1, 2, -1) == [1, 2, -1]
