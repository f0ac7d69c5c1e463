"""The process that owns the device. To use a module that loads torch, import its file, not this."""

from __future__ import annotations

from bt_bench.worker.checking.alike import in_common
from bt_bench.worker.checking.plain_exploring import PlainExplorer, explorer_of
from bt_bench.worker.compiling.census import DEFAULT_TARGETS, take_census
from bt_bench.worker.compiling.kept import take_code_census
from bt_bench.worker.machine.device import choose_device
from bt_bench.worker.machine.environment import (
    available_bytes,
    read_environment,
    read_machine,
)
from bt_bench.worker.machine.leases import leased, refuse_twice
from bt_bench.worker.machine.nvml import gpu_uuids
from bt_bench.worker.process.culprits import Noticing
from bt_bench.worker.process.supervisor import Serve, Supervisor
from bt_bench.worker.tasks.messages import Ahead, ArmSetup, Hello, WorkerSetup, arms_of
from bt_bench.worker.tasks.outcome import Measured, RoundProgress, TimelineParts
from bt_bench.worker.tasks.plays import (
    Coverage,
    Play,
    Played,
    ReadCoverage,
    ReadRan,
    Survey,
    Surveyed,
    Unreached,
)
from bt_bench.worker.tasks.runner import Finished, Runner, Watcher, WorkerError
from bt_bench.worker.tasks.tasks import (
    Calibrate,
    CheckCase,
    CheckConformance,
    Checked,
    CheckOutcome,
    CheckOutcomes,
    CountLaunches,
    MeasureCase,
    MeasureRound,
    PrepareRound,
    ReadChanges,
    ResultT,
    RoundOutcome,
    RoundUnit,
    TakeTimeline,
    Task,
)
