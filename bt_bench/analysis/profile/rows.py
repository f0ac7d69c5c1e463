"""The rows of a timeline: stretches of a step on the host and on the device."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, auto


class Lane(StrEnum):
    """The side of a row: host or device."""

    HOST = auto()
    DEVICE = auto()


class RowKind(StrEnum):
    """The kind of a row."""

    CODE = auto()  # the host's own code, between calls of CUDA
    LAUNCH = auto()  # a call that enqueues a device operation
    CALL = auto()  # another call of CUDA
    OPERATION = auto()  # on the device
    WAIT = auto()  # behind the call's return, until the device is idle


@dataclass(frozen=True)
class TimelineRow:
    """A stretch of a step; µs from its begin, medians over steps.

    Args:
        lane: host or device.
        what: kind of stretch.
        name: of the call or the operation.
        start_us: when it begins.
        end_us: when it ends.
        low_us: low end of the spread of its length.
        high_us: high end of it.
        queued_us: when the command of an operation was put into its buffer, if that is known.
        submitted_us: when the buffer was given to the GPU, if that is known.
        launched_by: place of the row that enqueued an operation.
        moved_bytes: of a copy.
    """

    lane: Lane
    what: RowKind
    name: str
    start_us: float
    end_us: float
    low_us: float
    high_us: float
    queued_us: float | None = None
    submitted_us: float | None = None
    launched_by: int | None = None
    moved_bytes: int | None = None

    @property
    def length_us(self) -> float:
        """Return its length."""
        return self.end_us - self.start_us
