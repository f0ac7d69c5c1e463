"""Device operations of single calls, from made-up records of the profiler."""

from __future__ import annotations

from dataclasses import dataclass

from torch._C._autograd import DeviceType

from bt_bench.worker.measuring.calibration.profiled_calls import (
    CALL_RANGE,
    DeviceRecord,
    records_by_call,
)


@dataclass(frozen=True)
class Event:
    """As Kineto has them."""

    text: str
    start: int
    length: int
    on_device: bool = True

    def name(self):
        return self.text

    def start_ns(self):
        return self.start

    def duration_ns(self):
        return self.length

    def device_type(self):
        return DeviceType.CUDA if self.on_device else DeviceType.CPU


def call(index, start, end):
    """A range on the host, and the shadow that it has on the device's time line."""
    name = f"{CALL_RANGE}{index}"
    return [Event(name, start, end - start, on_device=False), Event(name, start + 1, 3)]


def test_operations_are_sorted_into_their_calls():
    events = [
        Event("late", 230, 1_500),
        *call(1, 200, 300),
        Event("first", 110, 600),
        Event("second", 120, 700),
        *call(0, 100, 190),
        Event("cudaLaunchKernel", 105, 5, on_device=False),
    ]
    assert records_by_call(events, 2) == [
        [DeviceRecord("first", 0.6), DeviceRecord("second", 0.7)],
        [DeviceRecord("late", 1.5)],
    ]


def test_operations_outside_of_calls_are_left_out():
    events = [Event("before", 50, 9), *call(0, 100, 200), Event("after", 250, 9)]
    assert records_by_call(events, 1) == [[]]


def test_a_range_that_was_not_recorded_has_no_operations():
    events = [*call(1, 200, 300), Event("kernel", 110, 9), Event("kernel", 210, 9)]
    assert records_by_call(events, 2) == [[], [DeviceRecord("kernel", 0.009)]]
