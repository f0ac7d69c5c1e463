"""Passes under CUPTI without a GPU: its module is a stand-in."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading

import numpy as np
import pytest
from support.cupti import Kind, record

from bt_bench.worker.profiling import activity_buffers
from bt_bench.worker.profiling.cupti_tracer import CuptiTracer
from bt_bench.worker.profiling.records import ApiRecord, DeviceRecord, PassRecords

DEVICE = {Kind.CONCURRENT_KERNEL, Kind.MEMCPY, Kind.MEMSET}


def call_of(kind, number, correlation=1, start=100, end=200):
    return record(kind, cbid=number, correlation_id=correlation, start=start, end=end)


def kernel_of(kind=Kind.CONCURRENT_KERNEL, name="gather_kernel", queued=0, submitted=0):
    times = {"start": 300, "end": 400, "queued": queued, "submitted": submitted}
    return record(kind, name=name, correlation_id=7, **times)


def moved_of(kind, **fields):
    return record(kind, correlation_id=7, start=300, end=400, bytes=4_096, **fields)


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
        call_of(Kind.DRIVER, 1, correlation=5, start=110, end=190),
        call_of(Kind.RUNTIME, 2),
        call_of(Kind.DRIVER, 2),
        call_of(Kind.RUNTIME, 1),
    )
    assert sorted((call.api, call.name) for call in taken.calls) == [
        ("driver", "cuLaunchKernelEx"),
        ("driver", "cuMemcpyHtoDAsync"),
        ("runtime", "cudaGraph_vector"),
        ("runtime", "cudaLaunchKernel"),
        ("runtime", "cudaLaunchKernel"),
    ]
    assert ApiRecord("driver", "cuLaunchKernelEx", 5, 110, 190) in taken.calls
    assert cupti.asked == 4  # each name once


def test_kernels_tell_when_they_were_queued_if_it_is_known(cupti):
    taken = taken_of(
        CuptiTracer(),
        cupti,
        kernel_of(queued=250, submitted=270),
        kernel_of(Kind.KERNEL, queued=0, submitted=270),
        kernel_of(),
    )
    same = "kernel", "gather_kernel", 7, 300, 400
    assert set(taken.operations) == {
        DeviceRecord(*same, 250, 270),
        DeviceRecord(*same, None, 270),
        DeviceRecord(*same, None, None),
    }


def test_copies_say_from_where_to_where(cupti):
    copies = [moved_of(Kind.MEMCPY, copy_kind=kind) for kind in (1, 2, 8, 9, 10)]
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
    taken = taken_of(CuptiTracer(), cupti, record(Kind.OVERHEAD))
    assert taken == PassRecords()


def test_records_come_from_several_buffers_and_these_are_lent_again(cupti, monkeypatch):
    made_arrays = []
    zeros = np.zeros

    def counted(*given):
        made_arrays.append(given)
        return zeros(*given)

    monkeypatch.setattr(activity_buffers.np, "zeros", counted)
    cupti.per_buffer = 2
    made = CuptiTracer()
    for count in (5, 4):
        with made.recording():
            cupti.waiting += [
                call_of(Kind.DRIVER, 1, correlation=number, start=number) for number in range(count)
            ]
    assert [call.correlation for call in made.taken().calls] == [*range(5), *range(4)]
    assert len(cupti.lent) == 5
    assert len(made_arrays) == 3


def test_an_address_may_be_another_name_in_the_next_pass(cupti):
    """CUPTI has forgotten the names of a pass once it is finalized."""
    made = CuptiTracer()
    names = [b"gather", b"slots"]
    memory = ctypes.create_string_buffer(16)
    for name in names:
        memory.value = name
        with made.recording():
            one = kernel_of()
            one["name"] = ctypes.addressof(memory)
            cupti.waiting += [one]
    assert [one.name for one in made.taken().operations] == ["gather", "slots"]


@pytest.mark.parametrize(("content", "name"), [(None, "unnamed kernel"), (b"a\xffb", "a\ufffdb")])
def test_a_kernel_has_a_name_whatever_cupti_gives(cupti, content, name):
    memory = ctypes.create_string_buffer(content) if content else None
    one = kernel_of()
    one["name"] = ctypes.addressof(memory) if memory is not None else 0
    assert [each.name for each in taken_of(CuptiTracer(), cupti, one).operations] == [name]


def test_what_a_failed_pass_left_is_not_read(cupti):
    def fails():
        cupti.fill([kernel_of()])  # as CUPTI does by itself when a buffer is full
        raise KeyError

    made = CuptiTracer()
    with pytest.raises(KeyError), made.recording():
        fails()
    assert made.dropped() == 1
    with made.recording():
        pass
    assert made.taken() == PassRecords()
    assert made.dropped() == 0


def test_a_buffer_that_comes_too_late_is_lost(cupti):
    made = CuptiTracer()
    cupti.late += [[kernel_of()]]
    assert not taken_of(made, cupti).operations
    assert made.dropped() == 1


def test_a_buffer_that_cupti_kept_is_lent_again_once_it_is_finalized(cupti):
    made = CuptiTracer()
    for _ in range(2):
        with made.recording():
            cupti.lend()
    first, second = cupti.lent
    assert first == second
    assert made.dropped() == 0


def test_a_buffer_that_was_not_lent_is_lost(cupti):
    made = CuptiTracer()
    with made.recording():
        cupti._completed(None, 0, 4_096, 1 << 20, 40)
    assert made.dropped() == 1


def test_buffers_may_be_asked_for_and_given_back_by_another_thread(cupti):
    made = CuptiTracer()
    with made.recording():
        thread = threading.Thread(target=cupti.fill, args=([kernel_of()] * 3,))
        thread.start()
        thread.join()
    assert len(made.taken().operations) == 3


def test_what_cannot_be_read_is_lost(cupti):
    """So that the pass is taken again."""
    made = CuptiTracer()
    assert made.taken().unreadable is None
    cupti.unreadable = True
    taken_of(made, cupti, kernel_of())
    assert made.dropped() == 1
    assert made.taken().unreadable == "cuptiError: CUPTI_ERROR_INVALID_KIND"
    cupti.unreadable = False
    before = len(made.taken().operations)
    assert len(taken_of(made, cupti, kernel_of()).operations) == before + 1
    assert made.dropped() == 0


def test_a_call_without_a_name_is_lost(cupti):
    made = CuptiTracer()
    taken = taken_of(made, cupti, call_of(Kind.DRIVER, 1), call_of(Kind.DRIVER, 999), kernel_of())
    assert made.dropped() == 1
    assert not taken.calls  # not even those before it
    assert made.taken().unreadable == "KeyError: ('driver', 999)"


def test_what_cupti_may_still_use_stays(cupti):
    """Where it cannot be finalized it may ask for a buffer, or fill one, at any time."""
    cupti.refuses = "finalize"
    known = len(activity_buffers._ever_registered)
    with pytest.raises(RuntimeError, match="CUPTI refused"):
        CuptiTracer()
    gc.collect()
    assert cupti.attached
    assert len(activity_buffers._ever_registered) > known  # or what follows ends the process
    cupti.fill([kernel_of()])
    assert np.frombuffer(ctypes.string_at(cupti.lent[-1], 4), np.int32) == Kind.CONCURRENT_KERNEL


def replaced(layout, field, place=None, form=None):
    """A layout with a field at another place, of another form, or without it."""
    fields = {name: (kind, at) for name, (kind, at, *_) in layout.fields.items()}
    kind, _ = fields.pop(field)
    if place is not None:
        fields[field] = (kind if form is None else form, place)
    return np.dtype(
        {
            "names": list(fields),
            "formats": [kind for kind, _ in fields.values()],
            "offsets": [at for _, at in fields.values()],
            "itemsize": layout.itemsize + 8,
        }
    )


@pytest.mark.parametrize(
    ("change", "where"), [((24,), 24), ((16, "u4"), 16), ((), None)], ids=["place", "form", "gone"]
)
@pytest.mark.parametrize("name", ["activity_kernel10_dtype", "activity_memset4_dtype"])
def test_records_that_are_laid_out_in_another_way_are_refused(cupti, name, change, where):
    newer = name.replace("4", "5").replace("10", "11")
    setattr(cupti, newer, replaced(getattr(cupti, name), "start", *change))
    with pytest.raises(
        RuntimeError,
        match=rf"{newer}\.start is .* at byte {where}, and is expected to be uint64 at byte 16",
    ):
        CuptiTracer()


def test_layouts_have_a_prefix_before_version_13(cupti):
    for name in [name for name in dir(cupti) if name.endswith("_dtype")]:
        setattr(cupti, f"c_upti_{name}", getattr(cupti, name))
        delattr(cupti, name)
    assert len(taken_of(CuptiTracer(), cupti, kernel_of()).operations) == 1


@pytest.mark.parametrize("kind", ["api", "kernel10", "memcpy6", "memset4"])
def test_a_module_that_does_not_say_how_records_are_laid_out_is_refused(cupti, kind):
    delattr(cupti, f"activity_{kind}_dtype")
    with pytest.raises(AttributeError, match="has no layout for records of kind"):
        CuptiTracer()


@pytest.mark.parametrize("name", ["cuptiActivityRegisterCallbacks", "cuptiActivityGetNextRecord"])
def test_c_functions_that_are_not_there_or_of_another_form_are_refused(cupti, name):
    functions = sys.modules["cupti.cycupti"].__pyx_capi__
    others = dict(functions)
    functions[name] = next(other for key, other in others.items() if key != name)
    with pytest.raises(AttributeError, match=rf"has no {name} of the form CUptiResult"):
        CuptiTracer()
    del functions[name]
    with pytest.raises(AttributeError, match=rf"has no {name} of the form CUptiResult"):
        CuptiTracer()
