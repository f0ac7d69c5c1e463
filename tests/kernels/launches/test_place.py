"""Host code that takes the current device for the one that is meant gets the device of the tables.

The devices are scripted ones. `test_other_device` does the same on two that are there.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from support.scripted_devices import ScriptedDevices
from support.variants import classes

from bt_kernels import launches, one_launch
from bt_kernels.launches import CompiledLaunches, DirectLaunches, Place, jit_launches
from bt_kernels.layout import TableLayout
from bt_kernels.one_launch import carrying
from bt_kernels.staging import CapturedBuffer, HostRing

OTHER = torch.device("cuda", 1)
FOREIGN = ("green", 0)  # no context that torch could put back
LAYOUT = TableLayout((4, 4), (3, 3), max_num_reqs=4, max_num_batched_tokens=8)


class Kernel:
    """Notes which device is current when it is launched; the handle that a launch returns, too."""

    def __init__(self, devices):
        self.devices = devices
        self.seen = []
        self.src = SimpleNamespace(signature={"x": "i64"})
        self.metadata = SimpleNamespace(
            num_warps=4, shared=0, global_scratch_size=0, profile_scratch_size=1
        )

    def __getitem__(self, _grid):
        def call(*arguments, **_options):
            self.seen.append(self.devices.find_current())
            if arguments[0] == "fails":
                raise KeyError("refused")
            return self

        return call


@pytest.fixture
def devices(monkeypatch):
    """Device 0 is current, by a context that is no primary one."""
    return ScriptedDevices(monkeypatch, ("primary", 1), FOREIGN)


WAYS = {
    "jit": jit_launches,
    "compiled": CompiledLaunches,
    "direct": DirectLaunches,  # of a kernel that has to be launched by its handle
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_launch_does_it_on_the_device_of_the_tables(way, devices):
    kernel = Kernel(devices)
    place = Place(OTHER, devices.launcher())
    launch = WAYS[way](place)
    for _ in range(3):
        launch(kernel, (1, 1, 1), (7,), (), (), 4)
    devices.contexts = [("primary", 1)]
    launch(kernel, (1, 1, 1), (7,), (), (), 4)
    assert place.python_launches == 4
    assert kernel.seen == [1] * 4
    assert devices.contexts == [("primary", 1)]


@pytest.mark.parametrize("way", WAYS)
def test_what_was_current_is_so_again_after_a_launch_that_failed(way, devices):
    kernel = Kernel(devices)
    launch = WAYS[way](Place(OTHER, devices.launcher()))
    launch(kernel, (1, 1, 1), (7,), (), (), 4)
    for constants in ((), (9,)):  # a handle, and a first launch
        with pytest.raises(KeyError, match="refused"):
            launch(kernel, (1, 1, 1), ("fails",), constants, (), 4)
        assert devices.contexts == [("primary", 1), FOREIGN]
    assert kernel.seen == [1] * 3


def test_without_the_compiled_module_torch_puts_the_device_back(devices):
    place = Place(OTHER)
    assert place.run(devices.find_current) == 1
    with place.current():
        assert devices.find_current() == 1
    assert devices.find_current() == 0
    with pytest.raises(KeyError, match="refused"):
        place.run(Kernel(devices)[1, 1, 1], "fails")
    assert devices.find_current() == 0


def test_a_thread_without_a_context_is_left_without(devices):
    devices.contexts = []
    assert Place(OTHER, devices.launcher()).run(devices.find_current) == 1
    assert devices.contexts == []


def test_nothing_is_switched_where_the_device_is_current(devices):
    devices.contexts = [("green", 1)]
    place = Place(OTHER, devices.launcher())
    assert place.run(lambda: list(devices.contexts)) == [("green", 1)]
    with place.current():
        assert devices.contexts == [("green", 1)]


def test_a_place_on_the_cpu_switches_nothing(devices):
    place = Place(torch.device("cpu"))
    assert place.run(lambda: devices.contexts) == [("primary", 1), FOREIGN]
    assert place.is_current()
    assert not place.is_capturing()


@pytest.mark.parametrize("compiled", [True, False])
def test_it_is_the_capture_on_the_device_of_the_tables_that_counts(compiled, devices):
    place = Place(OTHER, devices.launcher() if compiled else None)
    before = list(devices.contexts) if compiled else devices.find_current()
    devices.capturing = {0}
    assert not place.is_capturing()
    devices.capturing = {1}
    assert place.is_capturing()
    assert before == (list(devices.contexts) if compiled else devices.find_current())
    devices.contexts = [("primary", 1)]
    assert place.is_capturing()


def test_events_are_recorded_on_the_device_of_the_tables(devices, monkeypatch):
    recorded = []

    class Event:
        def __init__(self, external=False):
            self.cuda_event = 99

        def record(self):
            recorded.append(devices.find_current())

        def synchronize(self):
            """It has come."""

    monkeypatch.setattr(torch.cuda, "Event", Event)
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *sizes, pin_memory, **rest: zeros(*sizes, **rest))
    place = Place(OTHER)
    ring = HostRing(1, place, per_set=1)
    for _ in range(3):
        ring.advance(1)
        ring.note_reader()
    assert recorded == [1] * 3
    CapturedBuffer(1, place).note_reader()
    assert recorded == [1] * 4
    # The compiled module is told the device's stream, and finds the device by itself.
    told = []
    place = Place(OTHER, devices.launcher())
    place.native.record = lambda *arguments: told.append(arguments)
    place.native.wait_for = told.append
    ring = HostRing(1, place, per_set=1)
    assert recorded == [1] * 6  # when torch made them
    ring.advance(1)
    assert told == [(99, 18), 99]


BINARY = carrying.Binary(one_launch.FEW, one_launch.SINGLE_IDS, options=False, aligned=True)


@pytest.fixture
def launch_of(devices, monkeypatch):
    """Makes a `CarryingLaunch` on device 1, whose kernels are `kernel`."""

    def make(kernel):
        monkeypatch.setattr(carrying, "one_launch_carrying_kernel", kernel)
        tables = SimpleNamespace(
            layout=LAYOUT,
            place=Place(OTHER, devices.launcher()),
            sharded=False,
            descriptors=torch.zeros(2, 16, dtype=torch.int64),
        )
        return one_launch.CarryingLaunch(tables)

    return make


def test_the_kernel_that_carries_writes_is_loaded_on_the_device_of_the_tables(
    devices, launch_of, monkeypatch
):
    kernel = Kernel(devices)
    launch = SimpleNamespace(side_by_side=512)
    monkeypatch.setattr(launches, "direct_launch", lambda *_: launch)
    carries = launch_of(kernel)
    assert carries._load(BINARY) is launch
    carries._int64 = "fails"
    with pytest.warns(UserWarning, match="launches cannot carry writes as parameters"):
        assert carries._load(BINARY) is None
    assert kernel.seen == [1, 1]
    assert devices.contexts == [("primary", 1), FOREIGN]


def test_a_kernel_that_cannot_be_launched_directly_carries_nothing(devices, launch_of, monkeypatch):
    def fails(*_):
        raise AttributeError("no such field")

    monkeypatch.setattr(launches, "direct_launch", fails)
    with pytest.warns(UserWarning, match="parameters: no such field"):
        assert launch_of(Kernel(devices))._load(BINARY) is None


def test_parameters_that_do_not_lie_side_by_side_carry_nothing(devices, launch_of, monkeypatch):
    carries = launch_of(Kernel(devices))
    num_words = carries.first + one_launch.PAYLOADS_INTERPRETED[0]
    launch = SimpleNamespace(side_by_side=num_words - 1)
    monkeypatch.setattr(launches, "direct_launch", lambda *_: launch)
    with pytest.warns(UserWarning, match="parameters: they do not lie side by side"):
        assert carries._load(BINARY) is None
    launch.side_by_side += 1
    assert carries._load(BINARY) is launch


def test_a_kernel_that_cannot_be_loaded_is_tried_once_and_stops_no_other(
    devices, launch_of, monkeypatch
):
    carries = launch_of(Kernel(devices))
    loaded, added = [], []

    def load(binary):
        loaded.append(binary)
        return None if binary == BINARY else binary

    monkeypatch.setattr(carries, "_load", load)
    carries.attach(SimpleNamespace(add=lambda *place: added.append(place)))
    other = BINARY._replace(kind=one_launch.MANY_IDS)
    for binary in (BINARY, BINARY, other, other, BINARY):
        assert carries._launch_of(binary) == (None if binary == BINARY else other)
    assert loaded == [BINARY, other]
    assert added == [(0, one_launch.MANY_IDS, False, True, other)]
    # What takes the place of a step in C, when tables move, has them, too.
    carries.attach(SimpleNamespace(add=lambda *place: added.append(place)))
    assert added[1:] == added[:1]


def test_inputs_on_another_device_are_refused_by_the_names_of_both():
    tables = classes(["one_launch"])["one_launch"](LAYOUT, "cpu")
    batch = {
        "idx_mapping": torch.zeros(1, dtype=torch.int64),
        "query_start_loc": torch.zeros(2, dtype=torch.int32),
        "positions": torch.zeros(1, dtype=torch.int64),
    }
    for name, tensor in batch.items():
        elsewhere = batch | {name: tensor.to("meta")}
        with pytest.raises(ValueError, match=rf"{name} is on meta; expected cpu, where the tables"):
            tables.prepare_step(*elsewhere.values(), 1, 1)


def test_a_kernel_that_fails_to_load_in_a_capture_is_loaded_later(devices, launch_of, monkeypatch):
    carries = launch_of(Kernel(devices))
    launch = SimpleNamespace(side_by_side=512)
    monkeypatch.setattr(launches, "direct_launch", lambda *_: launch)
    monkeypatch.setattr(carries._place, "is_capturing", lambda: True)
    kept, carries._int64 = carries._int64, "fails"
    with pytest.warns(UserWarning, match="launches cannot carry writes"):
        assert carries._launch_of(BINARY) is None
    carries._int64 = kept
    monkeypatch.setattr(carries._place, "is_capturing", lambda: False)
    assert carries._launch_of(BINARY) is launch
