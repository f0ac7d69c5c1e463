"""The data types of a calibration of device and host."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bt_bench.base.names import Operation as Operation
from bt_bench.results.run.nouns import Method, Noun, Quantity


class Figure(Noun):
    """Samples of one calibrated quantity, in microseconds."""

    name: str
    what: str
    samples: list[Annotated[float, Field(ge=0)]]


class DeviceLine(Noun):
    """What a method reports for kernels of known length: `reported_us[i]` for `set_us[i]`.

    Gradient and intercept of the line through them show how far the method is from the truth.
    """

    method: Method
    set_us: list[float]
    reported_us: list[list[Annotated[float, Field(ge=0)]]]


class LaunchChain(Noun):
    """A chain of empty kernels: how many were launched, and how many were counted."""

    launched: int
    counted: int


class Injection(Noun):
    """A host delay injected before a launch: the quantities without and with it.

    Both begin with a pause of `pause_us`, since a launch right after a synchronisation costs more
    than a later one, and the delay would otherwise be credited with that difference.
    """

    pause_us: float
    delay_us: float
    without: dict[Quantity, list[float]]
    with_delay: dict[Quantity, list[float]]


class L2Flush(Noun):
    """How the L2 is made cold: the bytes written between steps, and the size of the cache.

    `hot` and `cold` are times of a kernel that reads `read_bytes` without and with a flush before
    it, which proves that the flush works.
    """

    l2_bytes: int
    flushed_bytes: int
    read_bytes: int
    hot: list[float]
    cold: list[float]


class PlainCopies(Noun):
    """How long `destination.copy_(source)` takes on an idle device, by the profiler.

    `samples[i]`, in µs, are of copies that read and write `moved_bytes[i]` together. Sizes rise.
    """

    moved_bytes: list[Annotated[int, Field(gt=0, le=2**53)]]
    samples: list[list[Annotated[float, Field(ge=0)]]]


class Calibration(Noun):
    """What the harness itself costs and how far its methods are from the truth, in this run."""

    seconds: float
    figures: list[Figure]
    lines: list[DeviceLine] = []
    chains: list[LaunchChain] = []
    injection: Injection | None = None
    flush: L2Flush | None = None
    copies: PlainCopies | None = None  # an earlier version did not take them

    def samples(self, name: str) -> list[float] | None:
        """Return the samples of a figure, or `None` if it was not taken."""
        return next((figure.samples for figure in self.figures if figure.name == name), None)
