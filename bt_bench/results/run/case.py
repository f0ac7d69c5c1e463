"""One case of a result: its checks, its counts, and every raw sample of its measurements."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bt_bench.base.names import Operation as Operation
from bt_bench.results.run.nouns import Noun, ParameterValue, Quantity, Reason, Series, Status
from bt_bench.results.run.rows import SampleRows


class Measurement(Series):
    """Raw samples of one series, from the rounds that count.

    `samples[i]` is of round `rounds[i]` of the case's log; it has a sample for each step of the
    window, or one for the window as a whole (`per`). `queue_us` is the length of the device work
    queued ahead of the operation, if any.
    """

    unit: Literal["us"] = "us"
    per: Literal["step", "window"] = "step"
    queue_us: float | None = None
    rounds: list[Annotated[int, Field(ge=0)]]
    samples: SampleRows

    @property
    def series(self) -> Series:
        """The series of the samples."""
        return Series(
            quantity=self.quantity,
            method=self.method,
            launch_path=self.launch_path,
            load=self.load,
            l2=self.l2,
        )

    def is_of(self, series: Series) -> bool:
        """Return whether the samples are of a series."""
        # Thousands of cases are searched: models are not built, and the members are compared.
        return (
            self.quantity is series.quantity
            and self.method is series.method
            and self.launch_path is series.launch_path
            and self.load is series.load
            and self.l2 is series.l2
        )


class DiscardCode(StrEnum):
    """Why a round does not count."""

    THROTTLED = "throttled"
    QUOTA = "quota"
    CLOCK = "clock"
    COMPILED = "compiled"
    SHARED = "shared"


class RoundKind(StrEnum):
    """What was taken in a round."""

    TIMED = "timed"
    PROFILED = "profiled"
    REPLAYED = "replayed"  # captured graphs


class RoundLog(Noun):
    """The rounds of a case in their order, discarded ones too; lists of equal length.

    `kind` is the pass that the round belongs to, `instance` the copy of the tensors that it used,
    `place` where this arm stood in the round's order (0: first), `seconds` when the round began
    within its pass, `sm_clock_mhz` the lower of the clocks before and after it, and `discarded` why
    it does not count.
    """

    arms: list[str]  # all arms that took part
    kind: list[RoundKind]
    instance: list[int]
    place: list[int | None]  # `None`: took no part
    seconds: list[float]
    sm_clock_mhz: list[int | None]
    discarded: list[DiscardCode | None]


class StopReason(StrEnum):
    """Why no more rounds were taken."""

    PRECISE = "precise"  # the intervals are as narrow as asked
    STABLE = "stable"  # the noise is stable and too large for the plan's rounds
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
    """How much an unchanged copy of an arm differed from it, in the rounds of a case.

    `difference_us` is the copy minus the arm, in µs: the median over rounds of their ratio, less 1,
    times the arm's typical time. `share` is that ratio less 1, which is also what to expect of a
    variant that takes longer or shorter; files of earlier versions lack it.
    """

    series: Series
    arm: str
    difference_us: float
    share: float | None = None


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
        """Return the number of device operations per step of the window."""
        return [sum(launch.count for launch in step) for step in self.steps]


class CompiledKernel(Noun):
    """The binaries of one kernel that an arm launched in a case."""

    name: str
    hashes: list[str]
    registers: list[int | None]
    spills: list[int | None]


class CheckReport(Noun):
    """What was compared with the reference before timing.

    `differences` are those of an opponent, by the names in `docs/vllm.md`. Where they apply, it was
    compared with its own definitions. `within_tolerance` names the buffers that its suite lets
    differ by a tolerance; earlier versions did not record them.
    """

    steps: int = Field(ge=1)
    buffers: list[str]
    differences: list[str] = []
    within_tolerance: list[str] = []


_Bytes = Annotated[int, Field(ge=0, le=2**53)]


class RequiredBytes(Noun):
    """The bytes that one call of an operation must at least read and write in device memory.

    Both lists have a value for each step of the window. Each byte counts once.
    """

    read: list[_Bytes]
    written: list[_Bytes]

    def totals(self) -> list[int]:
        """Return the bytes read and written together, per step of the window."""
        return [read + written for read, written in zip(self.read, self.written, strict=True)]


class WorkloadRecord(Noun):
    """The workload of a case: its parameters, resulting sizes, and a digest of its arrays.

    `sizes` are those of each step by name, as its suite names them. `required_bytes` are by
    operation, where the suite knows them: in a result file that of the case alone. Earlier versions
    did not record them. `remarks` add facts to the parameters, such as how much of a file was left
    out.
    """

    kind: str = Field(min_length=1)
    parameters: dict[str, ParameterValue]
    digest: str
    num_steps: int = Field(ge=1)
    sizes: dict[str, list[int]] = {}
    required_bytes: dict[str, RequiredBytes] = {}
    remarks: list[str] = []

    @model_validator(mode="before")
    @classmethod
    def _with_sizes(cls, data: Any) -> Any:
        """Convert schema 2, where every size is a field of its own."""
        if not isinstance(data, dict) or "sizes" in data:
            return data
        own = {
            name: value
            for name, value in data.items()
            if name.startswith("num_") and name not in cls.model_fields
        }
        kept = {name: value for name, value in data.items() if name not in own}
        return kept | {"sizes": own} if own else data

    def of_operation(self, operation: Operation) -> Self:
        """Return a copy with the required bytes of one operation alone."""
        known = self.required_bytes.get(operation)
        return self.model_copy(
            update={"required_bytes": {} if known is None else {str(operation): known}}
        )


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
    control: list[Measurement] = []  # of the unchanged copy, if this arm was the one copied
    control_spreads: list[ControlSpread] = []
    # Wall time of the case for all variants, with its share of the workload's check; an earlier
    # version did not record it.
    seconds: Annotated[float, Field(ge=0)] | None = None
    part: Annotated[int, Field(ge=0)] | None = None  # in a merged result: index into its parts

    @property
    def digest(self) -> str:
        """Digest of its workload; cases with equal digests are compared."""
        return self.workload.digest

    @property
    def required_bytes(self) -> RequiredBytes | None:
        """The bytes that each step must read and write; `None` if unknown."""
        return self.workload.required_bytes.get(self.operation)

    def measurement(self, series: Series) -> Measurement | None:
        """Return the measurement of a series, or `None` if it was not taken."""
        return next((each for each in self.measurements if each.is_of(series)), None)


class Crash(Noun):
    """A crash that did not happen again when the task was repeated.

    `during` names the task, such as `step/small`. `known`: whether the crash happened in a call
    of this variant; otherwise every variant that took part records it. A crash that happens again
    is the reason of a failed case instead.
    """

    during: str
    reason: Reason
    known: bool
