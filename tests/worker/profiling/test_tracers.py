"""Which tracer is used, and torch's profiler, whose events are stand-ins."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from support.cupti import FakeCupti
from support.kineto import Event

from bt_bench.worker.profiling import cupti_tracer, tracers
from bt_bench.worker.profiling.cupti_tracer import CuptiTracer
from bt_bench.worker.profiling.records import ApiRecord, PassRecords
from bt_bench.worker.profiling.tracers import TorchTracer, tracer


def test_cupti_is_used_if_it_works(cupti):
    assert isinstance(tracer(), CuptiTracer)


@pytest.mark.parametrize("refuses", ["register", "enable", "finalize"])
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

    monkeypatch.setattr(cupti_tracer, "import_module", fails)
    assert any("(OSError: libcupti.so.13" in clause for clause in tracer().missing)


def test_events_of_torch_are_sorted_by_what_they_are():
    taken = PassRecords()
    for name in ("cudaLaunchKernel", "cuLaunchKernelEx", "aten::add", "custom_op", "cudnn"):
        tracers._take_event(Event(name, 1_000, 250, on_device=False), taken)
    for name in ("Memcpy HtoD (Pinned -> Device)", "Memset (Device)", "cuda_named_kernel"):
        tracers._take_event(Event(name, 1_000, 250), taken)
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
    launch = Event("cudaLaunchKernel", 1_000, 250, on_device=False)

    class Profile:
        def __init__(self, **given):
            assert given == {"use_kineto": True, "use_device": "cuda", "use_cpu": False}
            self.kineto_results = SimpleNamespace(events=lambda: [launch])

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
