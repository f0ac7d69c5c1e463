"""The data types of a timeline: every call and device operation of one step, in many samples.

All times are in µs from the step's call. Each list has a sample for each recorded step: index `i`
is the same step in all rows.
"""

from __future__ import annotations

from collections.abc import Sized
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bt_bench.base import write_text
from bt_bench.base.names import Operation as Operation
from bt_bench.results.files.kinds import TIMELINE
from bt_bench.results.files.profile_files import read_profile_file
from bt_bench.results.profile.host_profile import HostProfile
from bt_bench.results.run.nouns import Noun, Reason
from bt_bench.results.run.result import Environment

TIMELINE_NAME = "timeline.json"
TIMELINE_SCHEMA_VERSION: Literal[1] = 1

Microseconds = Annotated[float, Field(allow_inf_nan=False)]


def _check_lengths(count: int, **lists: Sized) -> None:
    for name, values in lists.items():
        if len(values) != count:
            raise ValueError(f"{name} has {len(values)} samples; expected {count}, as host_us")


class Tracing(StrEnum):
    """The events that a profiler records during a step."""

    NONE = "none"  # no profiler is attached to the process
    ALL = "all"  # every call of the CUDA API, kernels, copies and memsets


class HostCall(Noun):
    """A call of the CUDA API.

    `records` counts the profiler's records of it: a call of the runtime makes one of the driver.
    `operation` is the index of the device operation that it enqueued, if any.
    """

    name: str
    api: Literal["driver", "runtime"]
    records: int = Field(ge=1)
    operation: int | None = None
    start_us: list[Microseconds]
    end_us: list[Microseconds]


class DeviceOperation(Noun):
    """A kernel, copy or memset.

    `queued_us` is when the command was put into its buffer, `submitted_us` when the buffer was
    given to the GPU; both are `None` if the profiler does not report them. `moved_bytes` is known
    for copies and memsets.
    """

    kind: Literal["kernel", "copy", "memset"]
    name: str
    queued_us: list[Microseconds] | None = None
    submitted_us: list[Microseconds] | None = None
    start_us: list[Microseconds]
    end_us: list[Microseconds]
    moved_bytes: int | None = None


class TracedSteps(Noun):
    """The samples of one variant under one kind of tracing.

    `host_us` is the time until the call returned, `step_us` until the device was done. `turns` is
    the turn of each sample: within a turn, the machine had about the same speed, whatever was
    traced. `left_out` counts steps whose calls or operations differed from most, as may happen in a
    first call.
    """

    tracing: Tracing
    host_us: list[Microseconds]
    step_us: list[Microseconds]
    turns: list[int]
    calls: list[HostCall] = []
    operations: list[DeviceOperation] = []
    left_out: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _has_a_sample_of_each_step(self) -> Self:
        _check_lengths(len(self.host_us), step_us=self.step_us, turns=self.turns)
        timed: list[HostCall | DeviceOperation] = [*self.calls, *self.operations]
        for each in timed:
            _check_lengths(len(self.host_us), start_us=each.start_us, end_us=each.end_us)
        for operation in self.operations:
            known = {"queued_us": operation.queued_us, "submitted_us": operation.submitted_us}
            given = {name: values for name, values in known.items() if values is not None}
            _check_lengths(len(self.host_us), **given)
        for call in self.calls:
            if call.operation is not None and not 0 <= call.operation < len(self.operations):
                raise ValueError(
                    f"{call.name} enqueues operation {call.operation}, of {len(self.operations)}"
                )
        return self


class EmptyCalls(Noun):
    """Empty calls, which measure the profiler's overhead in the same rounds as the variants.

    `name` is `launch`, an empty kernel launched by a call of the driver, or `query`, several calls
    of the CUDA API in a row that enqueue nothing. `begin_us` is when the first of them began, if
    they were traced.
    """

    name: Literal["launch", "query"]
    tracing: Tracing
    host_us: list[Microseconds]
    step_us: list[Microseconds]
    turns: list[int]
    begin_us: list[Microseconds] = []
    records: int = Field(ge=1)

    @model_validator(mode="after")
    def _has_a_sample_of_each_call(self) -> Self:
        _check_lengths(len(self.host_us), step_us=self.step_us, turns=self.turns)
        return self


class VariantTimeline(Noun):
    """One variant: its samples under each kind of tracing, or why there are none.

    `nvtx_range` is the name of the NVTX range around the timed part of each step. `host` has the
    Python and C calls of a step.
    """

    name: str
    nvtx_range: str
    steps: list[TracedSteps] = []
    host: HostProfile | None = None
    reason: Reason | None = None

    def of(self, tracing: Tracing) -> TracedSteps | None:
        """Return the samples under one kind of tracing; `None` if there are none."""
        return next((steps for steps in self.steps if steps.tracing is tracing), None)


class Timeline(Noun):
    """One timeline file: a step of a case, by each variant.

    `source` is the profiler with its version, and `missing` lists data that it does not report.
    `required_bytes` must be read and written in device memory by the step; it is `None` if the
    suite does not state it.
    """

    schema_version: Literal[1] = TIMELINE_SCHEMA_VERSION
    config: str
    case: str
    operation: Operation
    step: int = Field(ge=0)
    num_steps: int = Field(ge=1)
    digest: str
    required_bytes: int | None = Field(default=None, ge=0)
    environment: Environment
    source: str
    missing: list[str] = []
    seconds: float = Field(ge=0)
    empty: list[EmptyCalls]
    variants: list[VariantTimeline]

    @model_validator(mode="after")
    def _is_of_one_step(self) -> Self:
        if self.step >= self.num_steps:
            raise ValueError(f"step {self.step} is not one of {self.num_steps}, counted from 0")
        names = [variant.name for variant in self.variants]
        if len(set(names)) < len(names):
            raise ValueError(f"variants are called {', '.join(names)}; expected each name once")
        return self

    def variant(self, name: str) -> VariantTimeline | None:
        """Return the timeline of a variant, or `None` if it took no part."""
        return next((variant for variant in self.variants if variant.name == name), None)

    def empty_calls(self, name: str, tracing: Tracing) -> EmptyCalls | None:
        """Return the empty calls of a name under one kind of tracing; `None` if there are none."""
        found = (e for e in self.empty if e.name == name and e.tracing is tracing)
        return next(found, None)


def write_timeline(path: Path, timeline: Timeline) -> None:
    """Write or replace a timeline atomically.

    Raises:
        UsageError: if it cannot be written.
    """
    write_text(path, timeline.model_dump_json() + "\n")


def read_timeline(path: Path) -> Timeline:
    """Read a timeline, given directly or as the folder of a profile.

    Raises:
        UsageError: if it cannot be read or is invalid; names the problem.
    """
    return read_profile_file(path, TIMELINE_NAME, Timeline, TIMELINE, "timeline")
