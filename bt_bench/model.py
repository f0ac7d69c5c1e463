"""The nouns of a result: immutable, with the unit in every name, and nothing derived.

A result file is one `VariantResult`. Raw samples are kept, so that a figure that is thought of
later can be computed from an old run. A value that was not measured is absent or `None`, never 0.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from bt_bench.operation import Operation as Operation  # part of the nouns

SCHEMA_VERSION: Final = 2
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
    INSUFFICIENT = "insufficient"  # too few rounds are left to say anything
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
    """What a measurement is of; all in microseconds. `docs/measurement.md` defines each."""

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
    """What took the time."""

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
    COLD = "cold"  # nothing of the tables: it was flushed


class Series(Noun):
    """What one measurement is of: a quantity, how it was taken, and under which condition."""

    quantity: Quantity
    method: Method
    launch_path: LaunchPath = LaunchPath.JIT
    load: Load = Load.IDLE
    l2: Cache = Cache.HOT


class Measurement(Series):
    """Raw samples of one series, from the rounds that count.

    `samples[i]` is of round `rounds[i]` of the case's log; it has a sample for each step of the
    window, or one for the window as a whole (`per`). `queue_us` is the length of the device work
    ahead of the operation, where there is such.
    """

    unit: Literal["us"] = "us"
    per: Literal["step", "window"] = "step"
    queue_us: float | None = None
    rounds: list[Annotated[int, Field(ge=0)]]
    samples: list[list[Annotated[float, Field(ge=0)]]]

    @property
    def series(self) -> Series:
        """What it is of, without the samples."""
        return Series(
            quantity=self.quantity,
            method=self.method,
            launch_path=self.launch_path,
            load=self.load,
            l2=self.l2,
        )


class DiscardCode(StrEnum):
    """Why a round does not count."""

    THROTTLED = "throttled"
    CLOCK = "clock"
    COMPILED = "compiled"


class RoundKind(StrEnum):
    """What was taken in a round."""

    TIMED = "timed"
    PROFILED = "profiled"
    REPLAYED = "replayed"  # captured graphs


class RoundLog(Noun):
    """The rounds of a case in their order, discarded ones too; lists of equal length.

    `kind` says which pass the round belongs to, `instance` is the copy of the tables that it used,
    `place` where this arm stood in the round's order (0: first), `seconds` when the round began
    within its pass, `sm_clock_mhz` the lower of the clocks before and after it, and `discarded` why
    it does not count.
    """

    arms: list[str]  # all that took part
    kind: list[RoundKind]
    instance: list[int]
    place: list[int | None]  # `None`: took no part
    seconds: list[float]
    sm_clock_mhz: list[int | None]
    discarded: list[DiscardCode | None]


class StopReason(StrEnum):
    """Why no more rounds were taken."""

    PRECISE = "precise"  # the intervals are as narrow as asked
    STABLE = "stable"  # the noise is stable, and no affordable number of rounds would do
    TIME = "time"
    ROUNDS = "rounds"


class Stopping(Noun):
    """When the rounds of a case ended, and why.

    `half_widths` are those of the 95 % intervals of this arm's medians, relative to the medians.
    """

    reason: StopReason
    rounds: int = Field(ge=0)
    discarded: dict[DiscardCode, int]
    seconds: float = Field(ge=0)
    half_widths: dict[Quantity, float | None]


class ControlSpread(Noun):
    """How far an unchanged copy of an arm came out from it, in the rounds of a case.

    `difference_us` is the copy less the arm, as savings are taken; two medians of the same code.
    """

    series: Series
    arm: str
    difference_us: float


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


class CompiledKernel(Noun):
    """The binaries of one kernel that an arm launched in a case."""

    name: str
    hashes: list[str]
    registers: list[int | None]
    spills: list[int | None]


class CheckReport(Noun):
    """What was compared with the reference before timing.

    `differences` are those of an opponent, by the names in `docs/vllm.md`: where they hold, it was
    compared with what it defines itself.
    """

    steps: int = Field(ge=1)
    buffers: list[str]
    differences: list[str] = []


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
    compiled: list[CompiledKernel] | None = None
    rounds: RoundLog | None = None
    stopping: Stopping | None = None
    measurements: list[Measurement] = []
    notes: list[str] = []  # what is missing, and why
    control: list[Measurement] = []  # of the unchanged copy, where this arm is what was copied
    control_spreads: list[ControlSpread] = []

    @property
    def digest(self) -> str:
        """Of its workload: cases of equal digests are compared."""
        return self.workload.digest

    def measurement(self, series: Series) -> Measurement | None:
        """The measurement of a series, or `None` where it was not taken."""
        for measurement in self.measurements:
            if measurement.series == series:
                return measurement
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


def _including(first: StrEnum) -> AfterValidator:
    """Refuses a list of conditions without the one that all others are compared with."""

    def check(values: list[Any], info: ValidationInfo) -> list[Any]:
        if first not in values:
            raise PydanticCustomError(
                "incomplete",
                "{field} lacks '{first}', which all others are compared with; add it",
                {"field": info.field_name, "first": first.value},
            )
        return values

    return AfterValidator(check)


class Plan(Noun):
    """How a sweep checks and measures; the `plan:` of a config."""

    rounds: int = Field(default=4000, ge=1, le=100_000, description="timed rounds, at most")
    min_rounds: int = Field(
        default=48, ge=1, le=100_000, description="timed rounds before a case may stop early"
    )
    precision_percent: float = Field(
        default=1.0,
        ge=0,
        le=100,
        description="half-width of the 95 % intervals of `host_us` and `step_us` (without a GPU "
        "`stage_us`) at which a case stops; 0: never early",
    )
    case_seconds: float = Field(
        default=20.0, gt=0, le=86_400, description="time for the rounds of a case, at most"
    )
    warmup_rounds: int = Field(
        default=3, ge=0, le=10_000, description="untimed replays of each instance first"
    )
    instances: int = Field(
        default=8,
        ge=1,
        le=100,
        description="copies of every variant's tables, which the rounds take in turn",
    )
    launch_paths: Annotated[list[LaunchPath], _including(LaunchPath.JIT)] = Field(
        default=[LaunchPath.JIT, LaunchPath.COMPILED, LaunchPath.GRAPH],
        min_length=1,
        description="ways to launch, of those that a variant supports",
    )
    loads: Annotated[list[Load], _including(Load.IDLE)] = Field(
        default=[Load.IDLE, Load.BUSY], min_length=1, description="what the GPU does meanwhile"
    )
    l2: Annotated[list[Cache], _including(Cache.HOT)] = Field(
        default=[Cache.HOT, Cache.COLD], min_length=1, description="what the L2 cache holds"
    )
    control: bool = Field(default=True, description="measure an unchanged copy of the first arm")
    profile_rounds: int = Field(
        default=24, ge=1, le=1_000, description="replays under the profiler, per condition"
    )
    graph_rounds: int = Field(default=48, ge=1, le=1_000, description="rounds of captured graphs")
    check_rounds: int = Field(
        default=1, ge=1, le=1_000, description="replays against the reference before timing"
    )
    hang_seconds: float = Field(
        default=120.0, gt=0, le=86_400, description="time for one call of a variant, at most"
    )
    seed: int = Field(default=0, ge=0, description="of the order of arms and the poison")


class Figure(Noun):
    """Samples of one thing that calibration measures, in microseconds."""

    name: str
    what: str
    samples: list[Annotated[float, Field(ge=0)]]


class DeviceLine(Noun):
    """What a method reports for kernels of known length: `reported_us[i]` for `set_us[i]`.

    Gradient and intercept of the line through them say how far the method is from the truth.
    """

    method: Method
    set_us: list[float]
    reported_us: list[list[Annotated[float, Field(ge=0)]]]


class LaunchChain(Noun):
    """A chain of empty kernels: how many were launched, and how many were counted."""

    launched: int
    counted: int


class Injection(Noun):
    """A delay of the host put before a launch: the quantities without it and with it.

    Both begin with a pause of `pause_us`, since a launch right after a synchronisation costs more
    than a later one, and the delay would otherwise be credited with that difference.
    """

    pause_us: float
    delay_us: float
    without: dict[Quantity, list[float]]
    with_delay: dict[Quantity, list[float]]


class L2Flush(Noun):
    """How cold is made: bytes written between steps, against the cache's size.

    `hot` and `cold` are times of a kernel that reads `read_bytes`, without and with a flush before
    it: the proof that the flush works.
    """

    l2_bytes: int
    flushed_bytes: int
    read_bytes: int
    hot: list[float]
    cold: list[float]


class Calibration(Noun):
    """What the harness itself costs and how far its methods are from the truth, in this run."""

    seconds: float
    figures: list[Figure]
    lines: list[DeviceLine] = []
    chains: list[LaunchChain] = []
    injection: Injection | None = None
    flush: L2Flush | None = None

    def samples(self, name: str) -> list[float] | None:
        """Samples of a figure, or `None` where it was not taken."""
        for figure in self.figures:
            if figure.name == name:
                return figure.samples
        return None


class VariantInfo(Noun):
    """Which code was measured."""

    name: str
    summary: str
    source_sha256: str


class Crash(Noun):
    """A crash that did not come back when what was under way was done once more.

    `during` is what that was, such as `step/small`. Whose crash it was is `known` where a call of
    the variant was under way; else every variant that took part has it. One that comes back is the
    reason of a case instead.
    """

    during: str
    reason: Reason
    known: bool


class VariantResult(Noun):
    """One result file: all cases of one variant in one run."""

    schema_version: Literal[2] = SCHEMA_VERSION
    run_id: str  # equal ids: measured side by side, in interleaved rounds
    created: str  # ISO 8601, UTC
    complete: bool
    tool: Tool
    environment: Environment
    config: str  # the config's name
    plan: Plan
    calibration: Calibration | None = None
    variant: VariantInfo
    crashes: list[Crash] = []
    cases: list[CaseResult]
