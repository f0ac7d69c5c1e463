"""The vocabulary of the command line."""

from __future__ import annotations

import pytest

from bt_bench.base.names import gpu_index, gpu_uuid, is_device_choice, kind_of, resolved


@pytest.mark.parametrize(
    ("text", "index"),
    [("auto", None), ("cpu", None), ("cuda", None), ("cuda:0", 0), ("cuda:12", 12)],
)
def test_devices_that_can_be_chosen(text, index):
    assert is_device_choice(text)
    assert gpu_index(text) == index
    assert gpu_uuid(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
        "GPU-8932f937",
        "MIG-6f3f4f8a-0c5e-5b6e-9f3a-0123456789ab",
        "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0",
    ],
)
def test_a_gpu_or_a_part_of_one_can_be_chosen_by_its_uuid(text):
    assert is_device_choice(text)
    assert gpu_uuid(text) == resolved(text, "cuda") == text
    assert (gpu_index(text), kind_of(text)) == (None, "cuda")


@pytest.mark.parametrize(
    "text",
    [
        *("", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1,2", "cpu:0", "cuda:1234"),
        *(
            "GPU-",
            "MIG-",
            "GPU-x",
            "gpu-8932f937",
            "GPU-89,GPU-90",
            "MIG-GPU-8932f937",
            "cuda:MIG-1",
        ),
    ],
)
def test_other_texts_are_no_devices(text):
    assert not is_device_choice(text)


def test_further_processes_keep_the_gpu_that_was_chosen():
    assert resolved("auto", "cpu") == "cpu"
    assert resolved("cuda:1", "cuda") == "cuda:1"
    assert [kind_of(choice) for choice in ("cuda:1", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]
