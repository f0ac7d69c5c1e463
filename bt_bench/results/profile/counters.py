"""The data types of hardware counters, taken by Nsight Compute on the kernels of one step.

Values are stored raw, one for each profiled call of the step; readers derive the figures. A counter
that the tool could not take is absent, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from bt_bench.base import write_text
from bt_bench.base.names import Operation as Operation
from bt_bench.base.names import Row
from bt_bench.results.files.kinds import COUNTERS
from bt_bench.results.files.profile_files import read_profile_file
from bt_bench.results.run.nouns import Cache, Noun, Reason
from bt_bench.results.run.result import Environment

COUNTERS_NAME = "counters.json"
NCU_REPORT_NAME = "kernels.ncu-rep"
COUNTERS_SCHEMA_VERSION: Final = 1

SECTOR_BYTES = 32
"""A sector of the L2 cache, its unit of transfers and of counts."""

Value = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class CounterTraits:
    """The source of a counter.

    Args:
        what: the counted quantity, for messages.
        sources: names in Nsight Compute, each with its unit in units of the counter; the first that
            a report has is taken.
    """

    what: str
    sources: tuple[tuple[str, int], ...]

    @property
    def tool_name(self) -> str:
        """The name that is tried first."""
        return self.sources[0][0]


def _one(what: str, *names: str) -> CounterTraits:
    return CounterTraits(what, tuple((name, 1) for name in names))


def _sectors(what: str, name: str) -> CounterTraits:
    return CounterTraits(what, ((name, SECTOR_BYTES),))


class Counter(Row):
    """The counters that are kept, each with its unit in its name."""

    DURATION_NS = "duration_ns", _one("the duration", "gpu__time_duration.sum")
    DRAM_READ_BYTES = "dram_read_bytes", _one("bytes read from DRAM", "dram__bytes_read.sum")
    DRAM_WRITTEN_BYTES = (
        "dram_written_bytes",
        _one("bytes written to DRAM", "dram__bytes_write.sum"),
    )
    DRAM_PERCENT = (
        "dram_percent",
        _one(
            "the share of DRAM's throughput",
            "dram__throughput.avg.pct_of_peak_sustained_elapsed",
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        ),
    )
    # Only traffic of the SMs: for small kernels, most of the L2's total traffic is its own.
    L2_BYTES = (
        "l2_bytes",
        _sectors("bytes that the SMs moved through the L2", "lts__t_sectors_srcunit_tex.sum"),
    )
    L2_PERCENT = (
        "l2_percent",
        _one(
            "the share of the L2 cache's throughput",
            "lts__throughput.avg.pct_of_peak_sustained_elapsed",
            "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
        ),
    )
    L2_HIT_PERCENT = (
        "l2_hit_percent",
        _one("the hit rate of the L2 cache", "lts__t_sector_hit_rate.pct"),
    )
    PCIE_READ_BYTES = (
        "pcie_read_bytes",
        _sectors(
            "bytes that the SMs read from host memory",
            "lts__t_sectors_srcunit_tex_aperture_sysmem_op_read_lookup_miss.sum",
        ),
    )
    PCIE_WRITTEN_BYTES = (
        "pcie_written_bytes",
        _sectors(
            "bytes that the SMs wrote to host memory",
            "lts__t_sectors_srcunit_tex_aperture_sysmem_op_write.sum",
        ),
    )
    PCIE_PERCENT = (
        "pcie_percent",
        _one(
            "the share of the throughput from host memory",
            "lts__d_sectors_fill_sysmem.sum.pct_of_peak_sustained_elapsed",
        ),
    )
    SM_PERCENT = (
        "sm_percent",
        _one(
            "the share of the multiprocessors' throughput",
            "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        ),
    )
    PROGRAMS = "programs", _one("programs", "launch__grid_size")
    THREADS = "threads", _one("threads of a program", "launch__block_size")
    REGISTERS = "registers", _one("registers of a thread", "launch__registers_per_thread")
    WAVES = "waves", _one("waves of programs", "launch__waves_per_multiprocessor")
    WARPS_PERCENT = (
        "warps_percent",
        _one("the share of warps", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    )
    POSSIBLE_WARPS_PERCENT = (
        "possible_warps_percent",
        _one("the possible share of warps", "sm__maximum_warps_per_active_cycle_pct"),
    )
    LIMIT_BLOCKS = "limit_blocks", _one("the limit by programs", "launch__occupancy_limit_blocks")
    LIMIT_REGISTERS = (
        "limit_registers",
        _one("the limit by registers", "launch__occupancy_limit_registers"),
    )
    LIMIT_SHARED = (
        "limit_shared",
        _one("the limit by shared memory", "launch__occupancy_limit_shared_mem"),
    )
    LIMIT_WARPS = "limit_warps", _one("the limit by warps", "launch__occupancy_limit_warps")
    LIMIT_BARRIERS = (
        "limit_barriers",
        _one("the limit by barriers", "launch__occupancy_limit_barriers"),
    )

    traits: CounterTraits


class Stall(Noun):
    """Samples of warps that waited for one reason at one line.

    `reason` is the tool's name, such as `long_scoreboard`. `place` is file and line, such as
    `parts.py:85`, or `None` if the tool does not report it.
    """

    reason: str
    place: str | None = None
    samples: int = Field(ge=1)


class KernelCounters(Noun):
    """One kernel of a step.

    `values` has a value for each call. `samples` counts the samples of its warps in all calls,
    waiting or not; `stalls` has the waiting ones, most samples first.
    """

    name: str
    values: dict[Counter, list[Value]]
    samples: int = Field(default=0, ge=0)
    stalls: list[Stall] = []


class VariantCounters(Noun):
    """The kernels of one variant in the order of their launches, or why there are none."""

    name: str
    kernels: list[KernelCounters] = []
    reason: Reason | None = None


class Counters(Noun):
    """One file of counters: a step of a case, by each variant.

    `tool` is the version of Nsight Compute. `report` is the name of its own file beside this one,
    or `None` if that was too large to be kept. `read_bytes` and `written_bytes` must move in device
    memory; they are `None` if the suite does not state them. With a hot `l2` nothing was flushed;
    with a cold one, all caches were flushed before each replay of a kernel.
    """

    schema_version: Literal[1] = COUNTERS_SCHEMA_VERSION
    config: str
    case: str
    operation: Operation
    step: int = Field(ge=0)
    num_steps: int = Field(ge=1)
    digest: str
    read_bytes: int | None = Field(default=None, ge=0)
    written_bytes: int | None = Field(default=None, ge=0)
    environment: Environment
    tool: str
    l2: Cache
    calls: int = Field(ge=1)
    report: str | None = None
    variants: list[VariantCounters]

    @property
    def required_bytes(self) -> int | None:
        """Bytes that the operation must read and write; `None` if unknown."""
        if self.read_bytes is None or self.written_bytes is None:
            return None
        return self.read_bytes + self.written_bytes

    def variant(self, name: str) -> VariantCounters | None:
        """Return the counters of a variant, or `None` if it has none."""
        return next((variant for variant in self.variants if variant.name == name), None)

    def absent(self) -> Sequence[Counter]:
        """Return the counters that no kernel has."""
        kernels = [kernel for variant in self.variants for kernel in variant.kernels]
        return [c for c in Counter if kernels and not any(c in k.values for k in kernels)]


def write_counters(path: Path, counters: Counters) -> None:
    """Write or replace a file of counters atomically.

    Raises:
        UsageError: if it cannot be written.
    """
    write_text(path, counters.model_dump_json(indent=1) + "\n")


def read_counters(path: Path) -> Counters:
    """Read a file of counters, given directly or as the folder of a profile.

    Raises:
        UsageError: if it cannot be read or is invalid; names the problem.
    """
    return read_profile_file(path, COUNTERS_NAME, Counters, COUNTERS, "ncu")
