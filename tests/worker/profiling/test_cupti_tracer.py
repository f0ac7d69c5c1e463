"""Passes under CUPTI without a GPU: its module is a stand-in."""

from __future__ import annotations

import numpy as np
import pytest
from support.cupti import Kind, record

from bt_bench.worker.profiling.cupti_tracer import CuptiTracer
from bt_bench.worker.profiling.records import ApiRecord, DeviceRecord, Taken

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
    assert taken == Taken()


def test_records_come_from_several_buffers_and_these_are_lent_again(cupti):
    cupti.per_buffer = 2
    made = CuptiTracer()
    for count in (5, 4):
        with made.recording():
            cupti.waiting += [
                call_of(Kind.DRIVER, 1, correlation=number, start=number) for number in range(count)
            ]
    assert [call.correlation for call in made.taken().calls] == [*range(5), *range(4)]
    assert set(cupti.lent[3:]) <= set(cupti.lent[:3])


def test_kernels_whose_names_are_elsewhere_in_the_next_pass(cupti):
    made = CuptiTracer()
    names = "gather_kernel", "slots"
    for name in names:
        with made.recording():
            cupti.waiting += [kernel_of(name=name)]
    assert tuple(one.name for one in made.taken().operations) == names


def test_what_a_failed_pass_left_is_not_read(cupti):
    def fails():
        cupti.waiting += [kernel_of()]
        cupti.enabled.clear()
        cupti.activity_flush_all(1)  # as CUPTI does by itself when a buffer is full
        raise KeyError

    made = CuptiTracer()
    with pytest.raises(KeyError), made.recording():
        fails()
    with made.recording():
        pass
    assert made.taken() == Taken()


def test_an_unreadable_buffer_is_refused(cupti):
    made = CuptiTracer()
    cupti.unreadable = True
    with pytest.raises(RuntimeError, match="CUPTI refused: CUPTI_ERROR_INVALID_KIND"):
        taken_of(made, cupti, kernel_of())
    assert not cupti.attached


@pytest.mark.parametrize("name", ["activity_kernel10_dtype", "activity_memset4_dtype"])
def test_records_that_are_laid_out_in_another_way_are_refused(cupti, name):
    layout = getattr(cupti, name)
    fields = {
        field: (kind, place + (field == "start") * 8)
        for field, (kind, place, *_) in layout.fields.items()
    }
    moved = np.dtype(
        {
            "names": list(fields),
            "formats": [kind for kind, _ in fields.values()],
            "offsets": [place for _, place in fields.values()],
            "itemsize": layout.itemsize + 8,
        }
    )
    setattr(cupti, name.replace("4", "5").replace("10", "11"), moved)
    with pytest.raises(RuntimeError, match=r"_dtype\.start lies at byte 24, and is expected at 16"):
        CuptiTracer()


def test_a_module_without_layouts_is_used(cupti):
    """As cupti-python 12.8."""
    for name in dir(cupti):
        if name.endswith("_dtype"):
            delattr(cupti, name)
    taken = taken_of(CuptiTracer(), cupti, kernel_of())
    assert len(taken.operations) == 1
