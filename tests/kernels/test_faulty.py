"""The faulty variants are right until their fault, and then fail as they say."""

from __future__ import annotations

import ctypes
import os
import signal
import time

import pytest
import torch
from support.faulty import FAULTS, write_faulty
from support.variants import classes

from bt_kernels.layout import TableLayout

LAYOUT = TableLayout((4,), (3,), max_num_reqs=2, max_num_batched_tokens=4)
ON_CPU = [name for name, fault in FAULTS.items() if not fault.needs_gpu]
ON_GPU = [name for name, fault in FAULTS.items() if fault.needs_gpu]


def faulty(folder, name, device, **options):
    """Tables of a faulty variant, with a request in row 1."""
    write_faulty(folder, name, **options)
    tables = classes([name], [folder])[name](LAYOUT, device)
    tables.append_block_ids(1, [[7, 9]], overwrite=True)
    tables.apply_staged_writes()
    return tables


def gather(tables):
    mapping = torch.tensor([1], dtype=torch.int64, device=tables.device)
    (table,) = tables.gather_block_tables(mapping, 1)
    return table.tolist()


def assert_right_twice(tables):
    assert [gather(tables), gather(tables)] == [[[7, 9, 0]]] * 2


@pytest.mark.parametrize("name", ON_CPU)
def test_right_before_the_fault(name, tmp_path, device):
    assert_right_twice(faulty(tmp_path, name, device, after=2))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_GPU)
def test_right_before_the_fault_on_the_gpu(name, tmp_path, device):
    assert_right_twice(faulty(tmp_path, name, device, after=2))


def test_memory_error_comes_after_the_calls_that_are_right(tmp_path, device):
    tables = faulty(tmp_path, "memory_error", device, after=1)
    gather(tables)
    for _ in range(2):
        with pytest.raises(MemoryError, match="no room"):
            gather(tables)


def test_another_method_can_have_the_fault(tmp_path, device):
    with pytest.raises(MemoryError):
        faulty(tmp_path, "memory_error", device, method="apply_staged_writes")


def test_two_faults_under_names_of_their_own(tmp_path):
    for name, after in (("early", 0), ("late", 9)):
        assert write_faulty(tmp_path, "sleeps", after=after, variant=name) == tmp_path
    assert set(classes(["early", "late"], [tmp_path])) == {"early", "late"}


def test_sleeps_for_a_minute(tmp_path, device, monkeypatch):
    naps = []
    monkeypatch.setattr(time, "sleep", naps.append)
    gather(faulty(tmp_path, "sleeps", device))
    assert naps == [60]


def test_kills_its_own_process(tmp_path, device, monkeypatch):
    signals = []
    monkeypatch.setattr(os, "kill", lambda *arguments: signals.append(arguments))
    gather(faulty(tmp_path, "kills_itself", device))
    assert signals == [(os.getpid(), signal.SIGKILL)]


def test_segfaults_by_a_read_of_address_0(tmp_path, device, monkeypatch):
    addresses = []
    monkeypatch.setattr(ctypes, "string_at", addresses.append)
    gather(faulty(tmp_path, "segfaults", device))
    assert addresses == [0]


@pytest.mark.gpu
def test_asks_for_more_than_there_is(tmp_path, device):
    with pytest.raises(torch.OutOfMemoryError):
        gather(faulty(tmp_path, "asks_twice", device))
