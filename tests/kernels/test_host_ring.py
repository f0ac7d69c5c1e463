"""The host runs ahead of the device; a buffer that the device has yet to read is not filled again.

On the CPU the device is a scripted one: it runs what was enqueued only when the host waits for it,
as late as can be.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque

import pytest
import torch
from mutants import LATE, LATE_AS_PROMISED, write_mutant
from variants import classes

from bt_kernels import TableLayout
from bt_kernels.host_ring import HostRing

STEPS = 9
HOLD_CYCLES = 100_000_000  # about 50 ms at 2 GHz
LAYOUT = TableLayout((1,), (1,), max_num_reqs=1, max_num_batched_tokens=1)


class LateDevice:
    """Work that was enqueued, done in order, but only once somebody waits for it."""

    def __init__(self):
        self.queue = deque()
        self.enqueued = self.done = 0

    def enqueue(self, work):
        self.queue.append(work)
        self.enqueued += 1

    def run_to(self, number):
        while self.done < number:
            self.queue.popleft()()
            self.done += 1


class ScriptedEvent:
    """A CUDA event on the scripted device."""

    device: LateDevice

    def __init__(self):
        self.number = 0

    def record(self):
        self.number = self.device.enqueued

    def synchronize(self):
        self.device.run_to(self.number)


@pytest.fixture
def late_device(monkeypatch):
    """Stands in for the GPU of the rings that are made in a test."""
    scripted = LateDevice()
    monkeypatch.setattr(torch.cuda, "Event", type("Event", (ScriptedEvent,), {"device": scripted}))
    return scripted


def read_by(late_device, ring_class, in_flight=None, **options):
    """What the device reads of the numbers that the host writes, one in a buffer."""

    class Ring(ring_class):
        def _allocate(self, size):
            return torch.zeros(size, dtype=torch.int32)  # nothing can be pinned without a GPU

    ring = Ring(1, torch.device("cuda"), in_flight=in_flight, **options)
    read = []
    for number in range(STEPS):
        if in_flight is not None:  # the promise: no more steps than that are under way
            late_device.run_to(max(0, number - in_flight))
        ring.advance(1)[0] = number
        late_device.enqueue(lambda buffer=ring.current: read.append(int(buffer[0])))
    late_device.run_to(STEPS)
    return read


def ring_of_mutant(folder, name):
    classes([name], [write_mutant(folder, name)])
    return sys.modules[f"bt_kernels_{name}.staging"].HostRing


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_late_device_reads_every_buffer_before_it_is_filled_again(depth, late_device):
    assert read_by(late_device, HostRing, depth=depth) == list(range(STEPS))


@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_so_it_does_as_late_as_was_promised_without_being_waited_for(in_flight, late_device):
    assert read_by(late_device, HostRing, in_flight) == list(range(STEPS))


def test_the_host_runs_ahead_by_the_depth(late_device):
    """It does not wait for more than it must, or the ring would be of no use."""
    ring = type("Ring", (HostRing,), {"_allocate": lambda _, size: torch.zeros(size).int()})(
        1, torch.device("cuda"), depth=3
    )
    for _ in range(3):
        ring.advance(1)
        late_device.enqueue(lambda: None)
    assert late_device.done == 0
    ring.advance(1)
    assert late_device.done == 1


@pytest.mark.parametrize("name", LATE)
def test_a_ring_that_does_not_wait_is_found(name, late_device, tmp_path):
    assert read_by(late_device, ring_of_mutant(tmp_path, name)) != list(range(STEPS))


@pytest.mark.parametrize("name", LATE_AS_PROMISED)
def test_a_ring_that_is_too_short_is_found(name, late_device, tmp_path):
    assert read_by(late_device, ring_of_mutant(tmp_path, name), 2) != list(range(STEPS))


def gathered_late(variant, device, **options):
    """Block ids that are gathered, one a step, while the device is held busy."""
    tables = variant(LAYOUT, device, **options)
    row = torch.tensor([0], device=device)

    def step(block_id):
        tables.append_block_ids(0, [[block_id]], overwrite=True)
        tables.apply_staged_writes()
        (table,) = tables.gather_block_tables(row, 1)
        return table.clone()

    step(-1)  # loads the kernels
    torch.cuda.synchronize()
    torch.cuda._sleep(HOLD_CYCLES)
    found = [step(block_id) for block_id in range(STEPS)]
    torch.cuda.synchronize()
    return [int(table[0, 0]) for table in found]


@pytest.mark.gpu
@pytest.mark.parametrize("name", LATE)
def test_a_ring_that_does_not_wait_is_found_on_the_gpu(name, device, tmp_path):
    variant = classes([name], [write_mutant(tmp_path, name)])[name]
    assert gathered_late(variant, device) != list(range(STEPS))


@pytest.mark.gpu
@pytest.mark.parametrize("name", LATE_AS_PROMISED)
def test_a_ring_that_is_too_short_is_found_on_the_gpu(name, device, tmp_path):
    variant = classes([name], [write_mutant(tmp_path, name)])[name]
    assert gathered_late(variant, device, steps_in_flight=STEPS - 1) != list(range(STEPS))
    shipped = classes(["fused"])["fused"]
    assert gathered_late(shipped, device, steps_in_flight=STEPS - 1) == list(range(STEPS))


def test_the_ring_goes_round():
    ring = HostRing(4, torch.device("cpu"), in_flight=2)
    addresses = []
    for _ in range(4):
        ring.advance(4)[0] = 1
        addresses.append(ring.current.data_ptr())
    assert ring.depth == 3
    assert len(set(addresses[:3])) == 3
    assert addresses[3] == addresses[0]


def test_a_buffer_grows_and_is_filled_in_place():
    ring = HostRing(2, torch.device("cpu"))
    view = ring.advance(5)
    view[:5] = array("i", [1, 2, 3, 4, 5])
    assert ring.current[:5].tolist() == [1, 2, 3, 4, 5]


def test_a_ring_has_a_buffer():
    with pytest.raises(ValueError, match="in_flight is 0; expected 1 or more"):
        HostRing(4, torch.device("cpu"), in_flight=0)
