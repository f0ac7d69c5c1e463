"""Which device a worker takes, with a torch that sees made-up GPUs."""

from __future__ import annotations

import os

import pytest
import torch

from bt_bench.base.errors import UsageError
from bt_bench.worker.machine.device import VISIBLE, choose_device
from bt_bench.worker.machine.environment import read_environment

MACHINE = ["0", "1", "GPU-c"]  # what its GPUs are called in CUDA_VISIBLE_DEVICES


@pytest.fixture
def machine(monkeypatch):
    """A machine with three GPUs, of which CUDA shows those that the environment names."""

    def visible():
        named = os.environ.get(VISIBLE)
        return MACHINE if named is None else [n for n in named.split(",") if n in MACHINE]

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(visible()))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(visible()))
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setenv(VISIBLE, "unset")  # so that it is put back as it was
    monkeypatch.delenv(VISIBLE)
    monkeypatch.setenv("TEARDOWN_CUPTI", "1")
    return monkeypatch


def test_a_gpu_of_an_index_is_the_only_one_that_is_seen(machine):
    assert choose_device("cuda:1") == "cuda"
    assert os.environ[VISIBLE] == "1"


def test_an_index_counts_what_the_environment_leaves_visible(machine):
    machine.setenv(VISIBLE, "GPU-c, 0")
    assert choose_device("cuda:0") == "cuda"
    assert os.environ[VISIBLE] == "GPU-c"


@pytest.mark.parametrize("choice", ["cuda", "auto"])
def test_without_an_index_nothing_is_hidden(machine, choice):
    assert choose_device(choice) == "cuda"
    assert VISIBLE not in os.environ


@pytest.mark.parametrize(
    ("visible", "choice", "told"),
    [
        (None, "cuda:3", "device cuda:3: there is no GPU of this index; expected cuda:0 to cuda:2"),
        ("1", "cuda:1", "among those that CUDA_VISIBLE_DEVICES=1 leaves visible; expected cuda:0,"),
        ("1,7", "cuda:1", "that CUDA_VISIBLE_DEVICES=1,7 leaves visible; expected cuda:0,"),
    ],
)
def test_an_index_that_no_gpu_has_is_refused_with_those_that_there_are(
    machine, visible, choice, told
):
    if visible is not None:
        machine.setenv(VISIBLE, visible)
    with pytest.raises(UsageError) as refused:
        choose_device(choice)
    assert told in str(refused.value)
    assert os.environ.get(VISIBLE) == visible


@pytest.mark.parametrize("visible", [None, "", "7"])
def test_an_index_without_any_gpu_says_what_is_missing(machine, visible):
    machine.setattr(torch.cuda, "is_available", lambda: False)
    machine.setattr(torch.cuda, "device_count", lambda: 0)
    if visible is not None:
        machine.setenv(VISIBLE, visible)
    with pytest.raises(UsageError, match="no GPU to run on: torch sees no CUDA device"):
        choose_device("cuda:1")


def test_a_gpu_is_recorded_under_the_index_that_it_was_chosen_by(machine):
    class Properties:
        name, uuid, major, minor = "made up", "x", 9, 0
        total_memory, multi_processor_count = 1, 1

    asked = []
    machine.setattr(torch.cuda, "get_device_properties", lambda i: asked.append(i) or Properties)
    machine.setattr("bt_kernels.staging.why_not_pinned", lambda _: None)  # launches a kernel
    kind = choose_device("cuda:1")
    environment = read_environment(kind, choice="cuda:1")
    assert [(gpu.index, gpu.name) for gpu in environment.gpus] == [(1, "made up")]
    assert set(asked) == {0}


UUID = "MIG-6f3f4f8a-0c5e-5b6e-9f3a-0123456789ab"


@pytest.fixture
def instances(machine):
    """The machine with a MIG instance, which CUDA shows only if it is named by its UUID."""

    def visible():
        named = os.environ.get(VISIBLE)
        known = [*MACHINE, UUID]
        return MACHINE if named is None else [n for n in named.split(",") if n in known]

    machine.setattr(torch.cuda, "is_available", lambda: bool(visible()))
    machine.setattr(torch.cuda, "device_count", lambda: len(visible()))
    return machine


def test_a_mig_instance_is_chosen_by_its_uuid(instances):
    assert choose_device(UUID) == "cuda"
    assert os.environ[VISIBLE] == UUID


@pytest.mark.parametrize("named", [f"GPU-c, {UUID}", UUID[:12]])
def test_a_uuid_that_the_environment_names_is_chosen_among_others(instances, named):
    instances.setenv(VISIBLE, named)
    assert choose_device(UUID) == "cuda"
    assert os.environ[VISIBLE] == UUID


@pytest.mark.parametrize(
    ("visible", "told"),
    [
        (None, "device GPU-0bad: CUDA finds no GPU and no MIG instance of this UUID; expected one"),
        ("0,1", "device GPU-0bad: CUDA_VISIBLE_DEVICES=0,1 does not name it; unset that variable"),
    ],
)
def test_a_uuid_that_cuda_does_not_find_is_refused(instances, visible, told):
    if visible is not None:
        instances.setenv(VISIBLE, visible)
    with pytest.raises(UsageError) as refused:
        choose_device("GPU-0bad")
    assert told in str(refused.value)
    assert os.environ.get(VISIBLE) == visible


def test_a_uuid_without_any_gpu_says_what_is_missing(machine):
    machine.setattr(torch.cuda, "is_available", lambda: False)
    machine.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UsageError, match="no GPU to run on: torch sees no CUDA device"):
        choose_device(UUID)


@pytest.mark.parametrize(
    ("cores", "given", "threads"), [(4, None, "4"), (64, None, None), (4, "3", "3")]
)
def test_torch_gets_as_many_threads_as_a_quota_allows(machine, cores, given, threads):
    machine.setattr("bt_bench.worker.machine.device.affine_cores", lambda: 64)
    machine.setattr("bt_bench.worker.machine.device.cores_here", lambda: cores)
    machine.setenv("OMP_NUM_THREADS", given or "unset")
    if given is None:
        machine.delenv("OMP_NUM_THREADS")
    choose_device("cuda")
    assert os.environ.get("OMP_NUM_THREADS") == threads


@pytest.mark.parametrize(
    ("choice", "given", "of_torch", "threads"),
    [
        ("cuda", None, 32, 4),
        (UUID, None, 32, 4),
        ("cuda:1", None, 32, 4),
        ("cuda", None, 2, 2),
        ("cuda", "32", 32, 32),
        ("cpu", None, 32, 32),
    ],
)
def test_workers_beside_gpus_leave_cores_to_each_other(instances, choice, given, of_torch, threads):
    found = [of_torch]
    instances.setattr(torch, "get_num_threads", lambda: found[-1])
    instances.setattr(torch, "set_num_threads", found.append)
    instances.setenv("TRITON_INTERPRET", str(int(choice == "cpu")))
    instances.delenv("OMP_NUM_THREADS")
    if given:
        instances.setenv("OMP_NUM_THREADS", given)
    choose_device(choice, interprets=False)
    assert found[-1] == threads
