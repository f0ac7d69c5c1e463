"""Tracers without a GPU: CUPTI's module and torch's events are stand-ins."""

from __future__ import annotations

import ctypes
import sys
from enum import IntEnum
from importlib import metadata
from types import ModuleType, SimpleNamespace

import pytest
from torch._C._autograd import DeviceType

from bt_bench.worker.profiling import tracers
from bt_bench.worker.profiling.tracers import (
    ApiRecord,
    CuptiTracer,
    DeviceRecord,
    Taken,
    TorchTracer,
    tracer,
)


class Kind(IntEnum):
    """Of `CUpti_ActivityKind`, with its values."""

    MEMCPY = 1
    MEMSET = 2
    KERNEL = 3
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10
    OVERHEAD = 17


DEVICE = {Kind.CONCURRENT_KERNEL, Kind.MEMCPY, Kind.MEMSET}
NAMES = {
    ("runtime", 1): "cudaLaunchKernel_v7000",
    ("runtime", 2): "cudaGraph_vector",
    ("driver", 1): "cuLaunchKernelEx",
    ("driver", 2): "cuMemcpyHtoDAsync_v2",
}


class FakeCupti(ModuleType):
    """`cupti.cupti`, as far as it is used; records are given out when it is flushed."""

    ActivityKind = Kind
    CallbackDomain = SimpleNamespace(DRIVER_API="driver", RUNTIME_API="runtime")

    class cuptiError(Exception):  # noqa: N801 - as it is called there
        pass

    def __init__(self):
        super().__init__("cupti.cupti")
        self.enabled, self.seen, self.waiting = set(), [], []
        self.dropped = 0
        self.asked = 0
        self.attached = False
        self.refuses = ""

    def _may(self, call):
        if call == self.refuses:
            raise self.cuptiError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")

    def activity_register_callbacks(self, requested, completed):
        self._may("register")
        self.attached = True
        size, most = requested()
        assert size >= 1 << 20
        assert most == 0  # as many records as fit
        self._completed = completed

    def activity_enable_latency_timestamps(self, enable):
        assert enable == 1

    def activity_enable(self, kind):
        self._may("enable")
        self.enabled.add(kind)

    def activity_disable(self, kind):
        self.enabled.remove(kind)

    def activity_flush_all(self, flag):
        assert flag == 1  # of buffers that are not full, too
        assert not self.enabled
        self.flushed = True
        self._completed(self.waiting)
        self.waiting = []

    def activity_get_num_dropped_records(self, context, stream, address):
        ctypes.c_size_t.from_address(address).value = self.dropped
        self.dropped = 0

    def finalize(self):
        self._may("finalize")
        self.attached = False
        self.enabled = set()

    def get_callback_name(self, domain, number):
        self.asked += 1
        return NAMES[domain, number]


@pytest.fixture
def cupti(monkeypatch):
    """CUPTI's module, installed."""
    fake = FakeCupti()
    package = ModuleType("cupti")
    package.cupti = fake
    monkeypatch.setitem(sys.modules, "cupti", package)
    monkeypatch.setitem(sys.modules, "cupti.cupti", fake)
    monkeypatch.setattr(metadata, "version", lambda name: {"cupti-python": "13.0.1"}[name])
    return fake


def call_of(kind, number, correlation=1, start=100, end=200):
    return SimpleNamespace(kind=kind, cbid=number, correlation_id=correlation, start=start, end=end)


def kernel_of(kind=Kind.CONCURRENT_KERNEL, queued=0, submitted=0):
    return SimpleNamespace(
        kind=kind,
        name="gather_kernel",
        correlation_id=7,
        start=300,
        end=400,
        queued=queued,
        submitted=submitted,
    )


def moved_of(kind, copy_kind=1):
    fields = {"copy_kind": copy_kind} if kind is Kind.MEMCPY else {}
    return SimpleNamespace(kind=kind, correlation_id=7, start=300, end=400, bytes=4_096, **fields)


def taken_of(made, cupti, *activities):
    with made.recording():
        cupti.waiting += activities
    return made.taken()


def test_what_is_recorded_is_enabled_for_the_pass_alone(cupti):
    made = CuptiTracer()
    assert made.source == "cupti-python 13.0.1"
    assert not made.missing
    for _ in range(2):
        assert not cupti.attached
        with made.recording():
            assert cupti.attached
            assert cupti.enabled == DEVICE | {Kind.DRIVER, Kind.RUNTIME}
        assert not cupti.attached


def test_after_a_failure_nothing_stays_attached(cupti):
    made = CuptiTracer()
    with pytest.raises(KeyError), made.recording():
        raise KeyError
    assert not cupti.attached


def test_records_are_given_out_for_all_passes_together(cupti):
    made = CuptiTracer()
    for count in (1, 2):
        with made.recording():
            cupti.waiting += [kernel_of()] * count
    assert len(made.taken().operations) == 3


def test_lost_records_are_told_once(cupti):
    made = CuptiTracer()
    cupti.dropped = 3
    with made.recording():
        assert made.dropped() == 0
    assert [made.dropped(), made.dropped()] == [3, 0]


def test_calls_have_the_names_of_programs(cupti):
    taken = taken_of(
        CuptiTracer(),
        cupti,
        call_of(Kind.RUNTIME, 1),
        call_of(Kind.RUNTIME, 2),
        call_of(Kind.DRIVER, 1, correlation=5, start=110, end=190),
        call_of(Kind.DRIVER, 2),
        call_of(Kind.RUNTIME, 1),
    )
    assert [(call.api, call.name) for call in taken.calls] == [
        ("runtime", "cudaLaunchKernel"),
        ("runtime", "cudaGraph_vector"),
        ("driver", "cuLaunchKernelEx"),
        ("driver", "cuMemcpyHtoDAsync"),
        ("runtime", "cudaLaunchKernel"),
    ]
    assert taken.calls[2] == ApiRecord("driver", "cuLaunchKernelEx", 5, 110, 190)
    assert cupti.asked == 4  # each name once


def test_kernels_tell_when_they_were_queued_if_it_is_known(cupti):
    taken = taken_of(
        CuptiTracer(),
        cupti,
        kernel_of(queued=250, submitted=270),
        kernel_of(Kind.KERNEL, queued=0, submitted=270),
        kernel_of(),
    )
    assert taken.operations[0] == DeviceRecord("kernel", "gather_kernel", 7, 300, 400, 250, 270)
    assert [(one.queued_ns, one.submitted_ns) for one in taken.operations] == [
        (250, 270),
        (None, 270),
        (None, None),
    ]


def test_copies_say_from_where_to_where(cupti):
    copies = [moved_of(Kind.MEMCPY, kind) for kind in (1, 2, 8, 9, 10)]
    taken = taken_of(CuptiTracer(), cupti, *copies, moved_of(Kind.MEMSET))
    assert [(one.kind, one.name) for one in taken.operations] == [
        ("copy", "copy host to device"),
        ("copy", "copy device to host"),
        ("copy", "copy device to device"),
        ("copy", "copy host to host"),
        ("copy", "copy of kind 10"),
        ("memset", "memset"),
    ]
    assert {one.moved_bytes for one in taken.operations} == {4_096}


def test_other_records_are_left(cupti):
    taken = taken_of(CuptiTracer(), cupti, SimpleNamespace(kind=Kind.OVERHEAD))
    assert taken == Taken()


def test_cupti_is_used_if_it_works(cupti):
    assert isinstance(tracer(), CuptiTracer)


@pytest.mark.parametrize("refuses", ["register", "enable"])
def test_torch_is_used_if_cupti_refuses(cupti, refuses):
    cupti.refuses = refuses
    found = tracer()
    assert isinstance(found, TorchTracer)
    assert any("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS" in clause for clause in found.missing)
    assert found.source.startswith("torch.profiler ")


def test_torch_is_used_without_the_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupti.cupti", None)
    found = tracer()
    assert isinstance(found, TorchTracer)
    assert any("(ModuleNotFoundError: " in clause for clause in found.missing)


def test_torch_is_used_if_a_library_is_missing(monkeypatch):
    def fails(name):
        raise OSError(f"libcupti.so.13: cannot open ({name})")

    monkeypatch.setattr(tracers, "import_module", fails)
    assert any("(OSError: libcupti.so.13" in clause for clause in tracer().missing)


class Event:
    """An event of Kineto's."""

    def __init__(self, name, device=DeviceType.CPU):
        self._name, self._device = name, device

    def name(self):
        return self._name

    def device_type(self):
        return self._device

    def start_ns(self):
        return 1_000

    def duration_ns(self):
        return 250

    def correlation_id(self):
        return 3


def test_events_of_torch_are_sorted_by_what_they_are():
    taken = Taken()
    for name in ("cudaLaunchKernel", "cuLaunchKernelEx", "aten::add", "custom_op", "cudnn"):
        tracers._take_event(Event(name), taken)
    for name in ("Memcpy HtoD (Pinned -> Device)", "Memset (Device)", "cuda_named_kernel"):
        tracers._take_event(Event(name, DeviceType.CUDA), taken)
    assert taken.calls == [
        ApiRecord("runtime", "cudaLaunchKernel", 3, 1_000, 1_250),
        ApiRecord("driver", "cuLaunchKernelEx", 3, 1_000, 1_250),
    ]
    assert [(one.kind, one.name) for one in taken.operations] == [
        ("copy", "Memcpy HtoD (Pinned -> Device)"),
        ("memset", "Memset (Device)"),
        ("kernel", "cuda_named_kernel"),
    ]
    assert {(one.correlation, one.start_ns, one.end_ns) for one in taken.operations} == {
        (3, 1_000, 1_250)
    }


def test_torch_records_a_pass(monkeypatch):
    class Profile:
        def __init__(self, **given):
            assert given == {"use_kineto": True, "use_device": "cuda", "use_cpu": False}
            self.kineto_results = SimpleNamespace(events=lambda: [Event("cudaLaunchKernel")])

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr("torch.autograd.profiler.profile", Profile)
    made = TorchTracer("why")
    for _ in range(2):
        with made.recording():
            pass
    assert [call.name for call in made.taken().calls] == ["cudaLaunchKernel"] * 2
    assert made.dropped() == 0


@pytest.mark.parametrize("lacks", ["finalize", "activity_enable_latency_timestamps"])
def test_torch_is_used_beside_a_module_that_is_too_old(cupti, monkeypatch, lacks):
    monkeypatch.delattr(FakeCupti, lacks)
    found = tracer()
    assert isinstance(found, TorchTracer)
    assert any(lacks in clause for clause in found.missing)


def test_torch_is_used_if_cupti_does_not_let_go(cupti):
    cupti.refuses = "finalize"
    assert isinstance(tracer(), TorchTracer)


def test_a_record_that_cannot_be_read_is_lost(cupti):
    made = CuptiTracer()
    with made.recording():
        cupti.waiting += [call_of(Kind.DRIVER, 999), kernel_of()]
    assert made.dropped() == 1
