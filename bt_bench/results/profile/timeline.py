"""The data types of a timeline: every call and device operation of one step, in many samples.

All times are in µs from the moment in which the step's call is made, and each list has a sample for
each step that was recorded. So `start_us[i]` of all rows are of the same step.
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
    """What a profiler records while a step is run."""

    NONE = "none"  # no profiler is attached to the process
    ALL = "all"  # every call of the CUDA API, kernels, copies and memsets


class HostCall(Noun):
    """A call of the CUDA API.

    `records` are the profiler's records of it: a call of the runtime makes one of the driver.
    `operation` is the place of what it enqueued among the device operations, if anything.
    """

    name: str
    api: Literal["driver", "runtime"]
    records: int = Field(ge=1)
    operation: int | None = None
    start_us: list[Microseconds]
    end_us: list[Microseconds]


class DeviceOperation(Noun):
    """A kernel, copy or memset.

    `queued_us` and `submitted_us` are when the command was put into its buffer, and when that was
    given to the GPU; absent where the profiler does not tell. `moved_bytes` are those of a copy or
    memset.
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

    `host_us` is the time until the call returned, `step_us` until the device had done all of it.
    `turns` says in which turn a sample was taken: the machine had the same speed within a turn,
    more or less, whatever was traced. `left_out` are steps whose calls or operations were other
    ones than in most, which a first call may have.
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
        for call in self.calls:
            _check_lengths(len(self.host_us), start_us=call.start_us, end_us=call.end_us)
        for operation in self.operations:
            _check_lengths(len(self.host_us), start_us=operation.start_us, end_us=operation.end_us)
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
    """What the profiler adds is measured on these, in the same rounds as the variants.

    `name` is `launch`, an empty kernel by a call of the driver, or `query`, some calls of the CUDA
    API in a row that enqueue nothing. `begin_us` is when the first of them began, where they
    were traced.
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

    `nvtx_range` is the name of the range that the timed part of each step has. `host` are the
    Python and C calls of a step.
    """

    name: str
    nvtx_range: str
    steps: list[TracedSteps] = []
    host: HostProfile | None = None
    reason: Reason | None = None

    def of(self, tracing: Tracing) -> TracedSteps | None:
        """The samples under one kind of tracing."""
        return next((steps for steps in self.steps if steps.tracing is tracing), None)


class Timeline(Noun):
    """One timeline file: a step of a case, by each variant.

    `source` is the profiler with its version, and `missing` what it does not tell. `required_bytes`
    are what the step must read and write in device memory, if its suite says so.
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
        """What is known of a variant, or `None` if it took no part."""
        return next((variant for variant in self.variants if variant.name == name), None)

    def empty_calls(self, name: str, tracing: Tracing) -> EmptyCalls | None:
        """The empty calls of a name under one kind of tracing."""
        found = (e for e in self.empty if e.name == name and e.tracing is tracing)
        return next(found, None)


def write_timeline(path: Path, timeline: Timeline) -> None:
    """Writes or replaces a timeline, atomically.

    Raises:
        UsageError: if it cannot be written.
    """
    write_text(path, timeline.model_dump_json() + "\n")


def read_timeline(path: Path) -> Timeline:
    """Reads a timeline, or that of a profile's folder.

    Raises:
        UsageError: if it cannot be read or is not one, saying what is wrong with it.
    """
    return read_profile_file(
        path, TIMELINE_NAME, Timeline, TIMELINE_SCHEMA_VERSION, TIMELINE, "timeline"
    )
