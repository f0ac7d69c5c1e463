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


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.gpu] * fault.needs_gpu)
        for name, fault in FAULTS.items()
    ],
)
def test_right_before_the_fault(name, tmp_path, device):
    tables = faulty(tmp_path, name, device, after=2)
    assert [gather(tables), gather(tables)] == [[[7, 9, 0]]] * 2


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


@pytest.mark.parametrize(
    ("name", "module", "function", "wanted"),
    [
        ("sleeps", time, "sleep", (60,)),
        ("kills_itself", os, "kill", (os.getpid(), signal.SIGKILL)),
        ("segfaults", ctypes, "string_at", (0,)),
    ],
)
def test_fails_by_a_call(name, module, function, wanted, tmp_path, device, monkeypatch):
    calls = []
    monkeypatch.setattr(module, function, lambda *arguments: calls.append(arguments))
    gather(faulty(tmp_path, name, device))
    assert calls == [wanted]


@pytest.mark.gpu
def test_asks_for_more_than_there_is(tmp_path, device):
    with pytest.raises(torch.OutOfMemoryError):
        gather(faulty(tmp_path, "asks_twice", device))
