"""Events as torch's profiler gives them."""

from __future__ import annotations

from dataclasses import dataclass

from torch._C._autograd import DeviceType


@dataclass(frozen=True)
class Event:
    """An event of Kineto's, on the device or on the host."""

    label: str
    start: int
    duration: int
    on_device: bool = True

    def name(self):
        return self.label

    def device_type(self):
        return DeviceType.CUDA if self.on_device else DeviceType.CPU

    def start_ns(self):
        return self.start

    def duration_ns(self):
        return self.duration

    def correlation_id(self):
        return 3
