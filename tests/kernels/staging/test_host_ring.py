"""The host runs ahead of the device; a buffer that the device has yet to read is not filled again.

On the CPU the device is a scripted one: it runs what was enqueued only when the host waits for it,
as late as can be.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from types import SimpleNamespace

import pytest
import torch
import triton
from support.mutants import LATE, LATE_AS_PROMISED, OVERWRITTEN, write_mutant
from support.variants import classes

from bt_kernels.launches import Place
from bt_kernels.layout import TableLayout
from bt_kernels.staging import CapturedBuffer, HostRing

STEPS = 40  # more than twice round
HOLD_CYCLES = 100_000_000  # about 50 ms at 2 GHz
CPU = Place(torch.device("cpu"))
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

    def __init__(self, external=False):
        self.number = 0
        self.external = external

    def record(self):
        self.number = self.device.enqueued

    def synchronize(self):
        self.device.run_to(self.number)


class ScriptedLauncher:
    """The compiled module: the same, by the handles of events."""

    def Device(self, _index):  # noqa: N802 - a class of the compiled module
        return self

    def is_current(self):
        return True

    def is_captured(self, _stream):
        return False

    def record(self, handle, _stream):
        handle.record()

    def wait_for(self, handle):
        handle.synchronize()


@pytest.fixture
def late_device(monkeypatch):
    """Stands in for the GPU of the buffers that are made in a test."""
    scripted = LateDevice()
    event = type("Event", (ScriptedEvent,), {"device": scripted, "cuda_event": property(id_of)})
    monkeypatch.setattr(torch.cuda, "Event", event)
    zeros = torch.zeros
    # Nothing can be pinned without a GPU.
    monkeypatch.setattr(torch, "zeros", lambda *sizes, pin_memory, **rest: zeros(*sizes, **rest))
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    active = SimpleNamespace(get_current_stream=lambda _: 0)
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=active))
    return scripted


def id_of(event):
    return event


def gpu(launcher=None):
    return Place(torch.device("cuda", 0), launcher)


def read_by(late_device, ring_class, in_flight=None, launcher=None):
    """What the device reads of the numbers that the host writes, one in a buffer."""
    ring = ring_class(1, gpu(launcher), in_flight=in_flight)
    read = []
    for number in range(STEPS):
        if in_flight is not None:  # the promise: no more steps than that are under way
            late_device.run_to(max(0, number - in_flight))
        ring.advance(1)[0] = number
        late_device.enqueue(lambda buffer=ring.current: read.append(int(buffer[0])))
        ring.note_reader()
    late_device.run_to(STEPS)
    return read


def advance_and_read(ring, late_device, times):
    """So many steps, each with a reader of its buffer, for which nobody waits here."""
    for _ in range(times):
        ring.advance(1)
        late_device.enqueue(lambda: None)
        ring.note_reader()


def published_to(late_device, buffer_class):
    """What replays read of the numbers that the host publishes, and what was done by the last."""
    buffer = buffer_class(1, gpu())
    read = []
    for number in range(STEPS):
        buffer.wait()[0] = number
        late_device.enqueue(lambda: read.append(int(buffer.tensor[0])))
        buffer.note_reader()  # a node behind the reader in a graph
        late_device.enqueue(lambda: None)  # what follows in the graph
    done = late_device.done
    late_device.run_to(2 * STEPS)
    return read, done


def of_mutant(folder, name):
    """The module of buffers of a mutant."""
    classes([name], [write_mutant(folder, name)])
    return sys.modules[f"bt_kernels_{name}.staging.host_ring"]


LAUNCHERS = pytest.mark.parametrize("launcher", [None, ScriptedLauncher()], ids=["torch", "C"])


@LAUNCHERS
def test_a_late_device_reads_every_buffer_before_it_is_filled_again(launcher, late_device):
    assert read_by(late_device, HostRing, launcher=launcher) == list(range(STEPS))


@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_so_it_does_as_late_as_was_promised_without_being_waited_for(in_flight, late_device):
    assert read_by(late_device, HostRing, in_flight) == list(range(STEPS))


def test_the_host_runs_ahead_by_the_depth(late_device):
    """It does not wait for more than it must, or the ring would be of no use."""
    ring = HostRing(1, gpu(), depth=2, per_set=3)
    advance_and_read(ring, late_device, times=5)  # it begins behind the first buffer
    assert (ring.num_buffers, late_device.done) == (6, 0)
    ring.advance(1)
    assert late_device.done == 2  # the first set, and the first buffer again


def test_an_event_is_recorded_for_a_set_of_buffers_and_not_for_each(late_device, monkeypatch):
    recorded = []
    monkeypatch.setattr(torch.cuda.Event, "record", lambda event: recorded.append(event))
    advance_and_read(HostRing(1, gpu()), late_device, times=32)
    assert len(recorded) == 4


def test_longer_writes_take_the_next_set_at_once_and_wait_for_its_readers(late_device):
    """Nothing that is read is given back, and there is one allocation for a set."""
    ring = HostRing(1, gpu(), depth=2, per_set=3)
    advance_and_read(ring, late_device, times=3)  # the first of the second set
    before = list(ring._buffers)
    ring.advance(40)
    assert late_device.done == 2
    assert len(ring.current) >= 40
    assert [new is old for new, old in zip(ring._buffers, before, strict=True)] == [
        *[False] * 3,
        *[True] * 3,
    ]
    ring.note_reader()
    for _ in range(2):
        assert len(ring.advance(40)) >= 40
        ring.note_reader()
    assert late_device.done == 2


def test_buffers_begin_at_lines_of_their_own():
    ring = HostRing(5, CPU, per_set=3)
    starts = [buffer.data_ptr() for buffer in ring._buffers]
    assert {start % 64 for start in starts} == {starts[0] % 64}


def test_a_step_that_failed_is_not_counted_on(late_device, monkeypatch):
    """Its buffer is not among those that are promised, so all of the device is waited for."""
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    ring = HostRing(1, gpu(), in_flight=2)
    ring.advance(1)
    ring.note_reader()
    ring.advance(1)  # and then its launch fails
    assert waited == []
    ring.advance(1)
    assert waited == [torch.device("cuda", 0)]


def test_a_publication_waits_until_the_replay_before_has_read_and_no_longer(late_device):
    read, done = published_to(late_device, CapturedBuffer)
    assert read == list(range(STEPS))
    assert done == 2 * STEPS - 3  # not what follows the reader, and not the last replay


def test_graphs_can_record_the_event_of_a_captured_buffer(late_device):
    assert CapturedBuffer(1, gpu())._read.external


def test_a_captured_buffer_stays_where_it_is():
    buffer = CapturedBuffer(4, CPU)
    before = buffer.tensor.data_ptr()
    buffer.wait()[3] = 7
    assert buffer.tensor.tolist() == [0, 0, 0, 7]
    buffer.note_reader()
    assert (len(buffer.wait()), buffer.tensor.data_ptr()) == (4, before)


@pytest.mark.parametrize("name", LATE)
def test_a_ring_that_does_not_wait_is_found(name, late_device, tmp_path):
    assert read_by(late_device, of_mutant(tmp_path, name).HostRing) != list(range(STEPS))


@pytest.mark.parametrize("name", LATE_AS_PROMISED)
def test_a_ring_that_is_too_short_is_found(name, late_device, tmp_path):
    assert read_by(late_device, of_mutant(tmp_path, name).HostRing, 2) != list(range(STEPS))


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_a_publication_that_does_not_wait_is_found(name, late_device, tmp_path):
    read, _ = published_to(late_device, of_mutant(tmp_path, name).CapturedBuffer)
    assert read != list(range(STEPS))


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
    ring = HostRing(4, CPU, in_flight=2)
    addresses = []
    for _ in range(4):
        ring.advance(4)[0] = 1
        addresses.append(ring.current.data_ptr())
    assert ring.depth == 3
    assert len(set(addresses[:3])) == 3
    assert addresses[3] == addresses[0]


def test_a_buffer_grows_and_is_filled_in_place():
    ring = HostRing(2, CPU)
    view = ring.advance(5)
    view[:5] = array("i", [1, 2, 3, 4, 5])
    assert ring.current[:5].tolist() == [1, 2, 3, 4, 5]


def test_a_ring_has_a_buffer():
    with pytest.raises(ValueError, match="in_flight is 0; expected 1 or more"):
        HostRing(4, CPU, in_flight=0)
