"""Data types that all parts of a result use: statuses, reasons, and series of samples."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from bt_bench.names import Operation as Operation

ParameterValue = bool | int | float | str | list[int] | None


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


class Quantity(StrEnum):
    """The measured quantities, all in microseconds; `docs/measurement.md` defines each."""

    HOST_US = "host_us"
    STAGE_US = "stage_us"
    GPU_US = "gpu_us"
    SPAN_US = "span_us"
    GAP_US = "gap_us"
    LAST_US = "last_us"
    STEP_US = "step_us"
    PIPELINED_US = "pipelined_us"
    EVENT_US = "event_us"


class Method(StrEnum):
    """How a time was measured."""

    HOST_CLOCK = "host_clock"
    EVENTS = "events"
    PROFILER = "profiler"
    GRAPH_SLOPE = "graph_slope"


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
    COLD = "cold"  # none of the tables, since it was flushed


class Series(Noun):
    """Identifies a measurement: a quantity, how it was taken, and under which condition."""

    quantity: Quantity
    method: Method
    launch_path: LaunchPath = LaunchPath.JIT
    load: Load = Load.IDLE
    l2: Cache = Cache.HOT
