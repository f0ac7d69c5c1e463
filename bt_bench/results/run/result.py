"""A result file: all cases of one variant in one run, and where they were measured.

Every noun is immutable, has units in its names, and holds nothing derived. Raw samples are kept:
new figures can be computed from old runs. A value that was not measured is absent or `None`,
never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from bt_bench.base.names import Operation as Operation
from bt_bench.results.run.calibration import Calibration
from bt_bench.results.run.case import CaseResult, Crash
from bt_bench.results.run.conditions import Condition
from bt_bench.results.run.helpers import Helpers
from bt_bench.results.run.nouns import Noun
from bt_bench.results.run.plan import Plan
from bt_bench.results.run.suites import SuiteInfo

SCHEMA_VERSION: Final = 3
BASELINE: Final = "baseline"  # the variant that others are compared with


class Tool(Noun):
    """What wrote the file."""

    name: Literal["bt-bench"] = "bt-bench"
    version: str
    command: list[str]


class Gpu(Noun):
    """One CUDA device; clocks are those at the time of the reading."""

    index: int
    name: str
    uuid: str | None = None
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
    host: str | None = None  # a digest of the host's name and of its boot, which names neither
    python: str
    platform: str
    cpu: str | None
    cpu_count: int | None
    cpu_governor: str | None
    cpu_affinity: int | None
    cpu_quota: float | None = None  # of the control groups, in cores; `None`: none, or unknown
    memory_limit_bytes: int | None = None  # likewise; beside what the machine has
    torch: str | None
    torch_threads: int | None = None  # on the CPU; an earlier version did not record them
    cuda: str | None
    triton: str | None
    interpreted: bool
    helpers: Helpers | None = None  # an earlier version did not record them
    conditions: list[Condition] | None = None  # likewise
    driver: str | None
    gpu_count: int
    gpus: list[Gpu]
    bt_bench: str
    commit: str | None
    dirty: bool | None
    # Of a checkout that git cannot read: git's message. Of what is no checkout: `None`.
    commit_unknown: str | None = None

    @property
    def gpu_label(self) -> str | None:
        """Return `GPU-` with the first digits of the UUID of the GPU; `None`: it is unknown."""
        uuid = self.gpus[0].uuid if self.gpus else None
        return None if uuid is None else f"GPU-{uuid.removeprefix('GPU-')[:8]}"


class VariantInfo(Noun):
    """Which code was measured.

    Args:
        name: of the variant.
        summary: the first line of its docstring.
        source_sha256: digest of its code.
        native: whether it uses the helpers in C where there are any, as its class declares; `None`:
            its class declares nothing, or an earlier version did not record it.
    """

    name: str
    summary: str
    source_sha256: str
    native: bool | None = None


class Shard(Noun):
    """The share of a sweep that one run measures, as `--shard K/N` asks.

    Args:
        index: K, counted from 1.
        count: N.
        balance: id of the earlier run by whose seconds the cases were divided; `None`: divided by
            a hash of each case.
        cases: number of cases of the whole sweep, one per workload.
        division: digest of the list of all cases and their shards: equal in all shards of a sweep.
    """

    index: int = Field(ge=1)
    count: int = Field(ge=1)
    balance: str | None = None
    cases: int = Field(ge=0)
    division: str

    @property
    def text(self) -> str:
        """Return `2/3`, as on the command line."""
        return f"{self.index}/{self.count}"


class Part(Noun):
    """A part of a result that one device has measured: its origin, and that device.

    Args:
        run_id: of the run that it was measured in.
        created: when that was begun.
        tool: the program and the command that measured it.
        environment: the device, its host, and the software.
        calibration: of that device.
        shard: of a merged result, the shard that the run was; `None`: a device of one run that
            several have measured.
    """

    run_id: str
    created: str
    tool: Tool
    environment: Environment
    calibration: Calibration | None
    shard: Shard | None = None


class VariantResult(Noun):
    """One result file: all cases of one variant in one run, or in merged runs.

    Schema 2 is read too: it names no suite, and all its results are of the default one.

    A run that is a shard of a sweep has `shard`. A merged result, and one of several devices, has
    `parts`: each of its cases names the part that measured it, and all variants have a case from
    the same part. It has the `environment` of its first part, and no calibration of its own.
    """

    schema_version: Literal[2, 3] = SCHEMA_VERSION
    run_id: str  # equal ids: measured side by side, in interleaved rounds
    created: str  # ISO 8601, UTC
    complete: bool
    tool: Tool
    environment: Environment
    config: str  # the config's name
    plan: Plan
    calibration: Calibration | None = None
    suite: SuiteInfo | None = None
    variant: VariantInfo
    crashes: list[Crash] = []
    shard: Shard | None = None
    parts: Annotated[list[Part], Field(min_length=1)] | None = None
    cases: list[CaseResult]

    def calibration_of(self, part: int | None) -> Calibration | None:
        """Return the calibration that holds for a case.

        Args:
            part: the case's `part`.
        """
        if self.parts is None or part is None:
            return self.calibration
        return self.parts[part].calibration

    def environment_of(self, part: int | None) -> Environment:
        """Return the environment that a case was measured in; see `calibration_of`."""
        if self.parts is None or part is None:
            return self.environment
        return self.parts[part].environment

    @property
    def environments(self) -> Sequence[Environment]:
        """Return the environment of each part; a run that is not merged has one."""
        return [self.environment_of(part) for part in self.part_numbers]

    @property
    def part_numbers(self) -> Sequence[int | None]:
        """Return the values that the `part` of a case may have."""
        return [None] if self.parts is None else range(len(self.parts))

    @property
    def shards(self) -> list[Shard]:
        """Return the shards that it is merged of; none of a run that several devices measured."""
        return list(
            dict.fromkeys(part.shard for part in self.parts or () if part.shard is not None)
        )

    def part_name(self, part: int | None) -> str | None:
        """Return the name of a part in reports, such as `shard 2/3`; `None` if there are none."""
        if self.parts is None or part is None:
            return None
        own = self.parts[part]
        device = own.environment.gpu_label or f"device {part + 1}"
        if own.shard is None:
            return device
        alone = [each.shard for each in self.parts].count(own.shard) == 1
        return f"shard {own.shard.text}" + ("" if alone else f" on {device}")
