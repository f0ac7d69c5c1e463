"""The nouns of a result: immutable, with the unit in every name, and nothing derived.

A result file is one `VariantResult`. Raw samples are kept, so that a figure that is thought of
later can be computed from an old run. A value that was not measured is absent or `None`, never 0.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from bt_bench.operation import Operation as Operation  # part of the nouns

SCHEMA_VERSION: Final = 1
BASELINE: Final = "baseline"  # the variant that others are compared with

ParameterValue = bool | int | float | str | list[int] | None


class Noun(BaseModel):
    """Base of all nouns: immutable, unknown keys and NaN refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants"
    )


OPERATION_TITLES: dict[Operation, str] = {
    Operation.STAGE: "Stage writes (host only)",
    Operation.APPLY: "Apply staged writes",
    Operation.GATHER: "Gather block tables",
    Operation.SLOTS: "Compute slot mappings",
    Operation.GATHER_SLOTS: "Gather + slots",
    Operation.STEP: "Whole step",
}


class Status(StrEnum):
    """How a case ended for one variant."""

    OK = "ok"
    FAILED = "failed"


class ReasonCode(StrEnum):
    """Why a case is not `ok`, or why part of it was not measured."""

    WRONG_RESULT = "wrong_result"
    OUT_OF_BOUNDS = "out_of_bounds"
    RAISED = "raised"
    OUT_OF_MEMORY = "out_of_memory"
    PROFILER_INCOMPLETE = "profiler_incomplete"


class Reason(Noun):
    """Why something is missing, for programs (`code`) and for people (`message`)."""

    code: ReasonCode
    message: str


class Quantity(StrEnum):
    """What a measurement is of; all in microseconds. `docs/measurement.md` defines each."""

    HOST_US = "host_us"
    STAGE_US = "stage_us"
    GPU_US = "gpu_us"
    STEP_US = "step_us"
    EVENT_US = "event_us"


class Measurement(Noun):
    """Raw samples of one quantity: `samples[round][step of the window]`."""

    quantity: Quantity
    unit: Literal["us"] = "us"
    samples: list[list[Annotated[float, Field(ge=0)]]]


class LaunchCount(Noun):
    """How often one device operation ran in a step."""

    kind: Literal["kernel", "copy", "memset", "torch_op"]
    name: str
    count: int = Field(ge=1)


class LaunchCensus(Noun):
    """Device operations of each step of the window, counted in a pass of its own.

    `counted_by` is `cupti` (activity records of the device) or `interpreter` (the launches that
    Triton's interpreter was asked for, and the torch operations beside them).
    """

    counted_by: Literal["cupti", "interpreter"]
    steps: list[list[LaunchCount]]

    def totals(self) -> list[int]:
        """Device operations per step of the window."""
        return [sum(launch.count for launch in step) for step in self.steps]


class CheckReport(Noun):
    """What was compared with the reference before timing."""

    steps: int = Field(ge=1)
    buffers: list[str]


class WorkloadRecord(Noun):
    """The workload of a case: its parameters, what they came to, and a digest of its arrays."""

    kind: Literal["uniform", "batch", "trace"]
    parameters: dict[str, ParameterValue]
    digest: str
    num_steps: int = Field(ge=1)
    num_reqs: list[int]
    num_tokens: list[int]
    num_rows_written: list[int]


class CaseResult(Noun):
    """One workload and one operation, for one variant."""

    key: str  # "<operation>/<case>"
    case: str
    operation: Operation
    workload: WorkloadRecord
    status: Status
    reason: Reason | None = None
    check: CheckReport | None = None
    launches: LaunchCensus | None = None
    measurements: list[Measurement] = []

    def samples(self, quantity: Quantity) -> list[list[float]] | None:
        """Raw samples of a quantity, or `None` where it was not measured."""
        for measurement in self.measurements:
            if measurement.quantity is quantity:
                return measurement.samples
        return None


class Tool(Noun):
    """What wrote the file."""

    name: Literal["bt-bench"] = "bt-bench"
    version: str
    command: list[str]


class Gpu(Noun):
    """One CUDA device; clocks are those at the time of the reading."""

    index: int
    name: str
    capability: str
    memory_bytes: int
    multiprocessors: int
    l2_bytes: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttle_reasons: list[str] | None = None


class Environment(Noun):
    """The machine and the software that a result was measured with."""

    device: Literal["cuda", "cpu"]
    python: str
    platform: str
    cpu: str | None
    cpu_count: int | None
    cpu_governor: str | None
    cpu_affinity: int | None
    torch: str | None
    cuda: str | None
    triton: str | None
    interpreted: bool
    driver: str | None
    gpu_count: int
    gpus: list[Gpu]
    bt_bench: str
    commit: str | None
    dirty: bool | None


class Plan(Noun):
    """How a sweep checks and measures; the `plan:` of a config."""

    rounds: int = Field(default=50, ge=1, le=100_000, description="timed replays of the window")
    warmup_rounds: int = Field(
        default=5, ge=0, le=10_000, description="untimed replays of each instance first"
    )
    instances: int = Field(
        default=3,
        ge=1,
        le=100,
        description="copies of every variant's tables, which the rounds take in turn",
    )
    profile_rounds: int = Field(
        default=12, ge=1, le=1_000, description="replays under the profiler"
    )
    check_rounds: int = Field(
        default=1, ge=1, le=1_000, description="replays against the reference before timing"
    )
    seed: int = Field(default=0, ge=0, description="of the order of arms and the poison")


class VariantInfo(Noun):
    """Which code was measured."""

    name: str
    summary: str
    source_sha256: str


class VariantResult(Noun):
    """One result file: all cases of one variant in one run."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str  # equal ids: measured side by side, in interleaved rounds
    created: str  # ISO 8601, UTC
    complete: bool
    tool: Tool
    environment: Environment
    config: str  # the config's name
    plan: Plan
    variant: VariantInfo
    cases: list[CaseResult]
