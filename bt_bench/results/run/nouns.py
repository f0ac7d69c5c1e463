"""Data types that all parts of a result use: statuses, reasons, and series of samples."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from bt_bench.base.names import Operation as Operation
from bt_bench.base.names import Row

ParameterValue = bool | int | float | str | list[int] | list[float] | list[str] | None


class Noun(BaseModel):
    """Base of all stored data types: immutable; refuses unknown keys and NaN."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants"
    )


class Status(StrEnum):
    """How a case ended for one variant."""

    OK = "ok"
    INSUFFICIENT = "insufficient"  # too few rounds are left
    FAILED = "failed"
    UNSUPPORTED = "unsupported"  # not run: the variant lacks a feature that the case needs


class ReasonCode(StrEnum):
    """Why a case is not `ok`, or why part of it was not measured."""

    WRONG_RESULT = "wrong_result"
    OUT_OF_BOUNDS = "out_of_bounds"
    RACE = "race"
    TAMPERED = "tampered"
    RAISED = "raised"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    HUNG = "hung"
    DISTURBED = "disturbed"
    PROFILER_INCOMPLETE = "profiler_incomplete"
    UNSUPPORTED = "unsupported"


class Reason(Noun):
    """Why something is missing, for programs (`code`) and for people (`message`)."""

    code: ReasonCode
    message: str


class Method(StrEnum):
    """How a time was measured."""

    HOST_CLOCK = "host_clock"
    EVENTS = "events"
    PROFILER = "profiler"
    GRAPH_SLOPE = "graph_slope"


class Direction(StrEnum):
    """The better direction of a quantity."""

    LOWER = "lower"
    HIGHER = "higher"


class Decides(StrEnum):
    """The operations whose comparisons a quantity decides, as one of the few primary ones."""

    LAUNCHING = "launching"  # operations that launch on a GPU
    STAGING = "staging"  # operations on the host alone, and everything without a GPU


@dataclass(frozen=True)
class Traits:
    """The traits of a quantity.

    Args:
        heading: heading of its column in tables, in lower case.
        meaning: a clause for people, as in `docs/measurement.md`.
        method: default method of its series.
        direction: which way is better.
        decides: where it is primary; `None` if it is exploratory everywhere.
        on_device: whether it is a time of the device, which only a GPU has.
        is_part: whether it is part of another time. It can grow while that shrinks, and is judged
            only on request.
        may_be_zero: whether nothing may be left to measure, as with the gaps of a single operation.
        tabled: whether it has a column in the table of times.
        floor_us: smaller differences count as none, whatever the statistics show.
    """

    heading: str
    meaning: str
    method: Method
    direction: Direction = Direction.LOWER
    decides: Decides | None = None
    on_device: bool = False
    is_part: bool = False
    may_be_zero: bool = False
    tabled: bool = True
    floor_us: float = 0.2


_HOST, _EVENTS, _PROFILER = Method.HOST_CLOCK, Method.EVENTS, Method.PROFILER


class Quantity(Row):
    """The measured quantities, all in microseconds; `docs/measurement.md` defines each."""

    # A row each, in the order of tables.
    HOST_US = (
        "host_us",
        Traits(
            "host",
            "host time of the operation until its call returns",
            _HOST,
            decides=Decides.LAUNCHING,
        ),
    )
    STAGE_US = (
        "stage_us",
        Traits("stage", "host time of staging a step's block ids", _HOST, decides=Decides.STAGING),
    )
    GPU_US = (
        "gpu_us",
        Traits(
            "device",
            "time during which the device worked for the operation",
            _PROFILER,
            decides=Decides.LAUNCHING,
            on_device=True,
        ),
    )
    SPAN_US = (
        "span_us",
        Traits(
            "span",
            "from the start of its first device operation to the end of its last",
            _PROFILER,
            on_device=True,
        ),
    )
    GAP_US = (
        "gap_us",
        Traits(
            "gap",
            "`span_us` minus `gpu_us`",
            _PROFILER,
            on_device=True,
            is_part=True,
            may_be_zero=True,
        ),
    )
    LAST_US = (
        "last_us",
        Traits(
            "last",
            "device time of its last device operation",
            _PROFILER,
            on_device=True,
            is_part=True,
            tabled=False,
        ),
    )
    STEP_US = (
        "step_us",
        Traits("step", "host time of the operation until the device is idle again", _HOST),
    )
    PIPELINED_US = (
        "pipelined_us",
        Traits(
            "pipelined", "time per call when several are enqueued, then one synchronisation", _HOST
        ),
    )
    EVENT_US = (
        "event_us",
        Traits(
            "event",
            "time between two CUDA events around the call",
            _EVENTS,
            on_device=True,
            tabled=False,
        ),
    )

    traits: Traits


class LaunchPath(StrEnum):
    """How the kernels of an operation are launched."""

    JIT = "jit"  # Triton's call, `kernel[grid](...)`
    COMPILED = "compiled"  # the handle of a compiled kernel
    DIRECT = "direct"  # the driver's cuLaunchKernel, past Triton's call
    GRAPH = "graph"  # replay of a CUDA graph


class Load(StrEnum):
    """What the device does when the operation is called."""

    IDLE = "idle"
    BUSY = "busy"  # it works through a queue that outlasts the call


class Cache(StrEnum):
    """What the L2 cache holds when the operation begins."""

    HOT = "hot"  # what the step before left in it
    COLD = "cold"  # nothing of it, since it was flushed


class Series(Noun):
    """Identifies a measurement: a quantity, how it was taken, and under which condition."""

    quantity: Quantity
    method: Method
    launch_path: LaunchPath = LaunchPath.JIT
    load: Load = Load.IDLE
    l2: Cache = Cache.HOT
