"""The vocabulary of the command line."""

from __future__ import annotations

import pytest

from bt_bench.base.names import gpu_index, is_device_choice, kind_of, resolved


@pytest.mark.parametrize(
    ("text", "index"),
    [("auto", None), ("cpu", None), ("cuda", None), ("cuda:0", 0), ("cuda:12", 12)],
)
def test_devices_that_can_be_chosen(text, index):
    assert is_device_choice(text)
    assert gpu_index(text) == index


@pytest.mark.parametrize(
    "text", ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1,2", "cpu:0", "cuda:1234"]
)
def test_other_texts_are_no_devices(text):
    assert not is_device_choice(text)


def test_further_processes_keep_the_gpu_that_was_chosen():
    assert resolved("auto", "cpu") == "cpu"
    assert resolved("cuda:1", "cuda") == "cuda:1"
    assert [kind_of(choice) for choice in ("cuda:1", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]
