"""Results with made-up figures, for tests of whatever stores, compares or prints results."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from bt_bench.base.names import Operation
from bt_bench.results import SuiteInfo
from bt_bench.results.run.calibration import Calibration, DeviceLine, Figure
from bt_bench.results.run.case import (
    CaseResult,
    CheckReport,
    Crash,
    LaunchCensus,
    LaunchCount,
    Measurement,
    RequiredBytes,
    RoundKind,
    RoundLog,
    WorkloadRecord,
)
from bt_bench.results.run.helpers import Helper, Helpers
from bt_bench.results.run.nouns import Method, Quantity, Reason, ReasonCode, Series, Status
from bt_bench.results.run.plan import Plan
from bt_bench.results.run.result import Environment, Gpu, Tool, VariantInfo, VariantResult
from bt_bench.results.run.series import series_of
from bt_bench.suites.block_tables import operations as ops

CREATED = "2026-01-02T03:04:05+00:00"


def make_gpu(name: str = "NVIDIA H200") -> Gpu:
    """A GPU of that name."""
    return Gpu(
        index=0,
        name=name,
        capability="9.0",
        memory_bytes=150_000_000_000,
        multiprocessors=132,
        l2_bytes=62_914_560,
    )


def make_helpers(**changes: str | bool | None) -> Helpers:
    """Helpers that are all in use, but for `changes`: why not, whether, or `None` (not at all)."""
    states: dict[str, str | bool | None] = dict.fromkeys(Helpers.model_fields, True) | changes
    return Helpers(
        **{
            name: None
            if state is None
            else Helper(in_use=state is True, why_not=state if isinstance(state, str) else None)
            for name, state in states.items()
        }
    )


def make_environment(device: Literal["cuda", "cpu"] = "cuda", **changes: Any) -> Environment:
    """A machine with a GPU, or one without that interprets; `changes` replace fields."""
    on_gpu = device == "cuda"
    fields: dict[str, Any] = {
        "device": device,
        "python": "3.12.1",
        "platform": "Linux-x86_64",
        "cpu": "Example CPU 9000",
        "cpu_count": 16 if on_gpu else 2,
        "cpu_governor": None,
        "cpu_affinity": None,
        "torch": "2.11.0" if on_gpu else "2.13.0+cpu",
        "cuda": "12.8" if on_gpu else None,
        "triton": "3.6.0" if on_gpu else "3.9.0",
        "interpreted": not on_gpu,
        "helpers": make_helpers()
        if on_gpu
        else make_helpers(direct_launches=None, pinned_memory=None, cupti=None, nvml=None),
        "driver": "570.124.06" if on_gpu else None,
        "gpu_count": 1 if on_gpu else 0,
        "gpus": [make_gpu()] if on_gpu else [],
        "bt_bench": "0.1.0",
        "commit": "0123456789abcdef",
        "dirty": False,
    }
    return Environment(**(fields | changes))


def make_launches(*steps: Sequence[str], counted_by: str = "cupti") -> LaunchCensus:
    """A census from the names launched in each step; `copy:x` is a copy named x."""
    return LaunchCensus.model_validate(
        {"counted_by": counted_by, "steps": [_count_launches(step) for step in steps]}
    )


def _count_launches(names: Sequence[str]) -> list[LaunchCount]:
    counts = []
    for name in dict.fromkeys(names):
        kind, _, rest = name.rpartition(":")
        fields = {"kind": kind or "kernel", "name": rest, "count": names.count(name)}
        counts.append(LaunchCount.model_validate(fields))
    return counts


def make_workload(
    name: str = "small", num_steps: int = 1, kind: str = "uniform", digest: str | None = None
) -> WorkloadRecord:
    """A workload whose digest follows from its name and length."""
    return WorkloadRecord.model_validate(
        {
            "kind": kind,
            "parameters": {"requests": 32, "tokens": 512, "groups": 1},
            "digest": digest or hashlib.sha256(f"{name} {num_steps}".encode()).hexdigest(),
            "num_steps": num_steps,
            "sizes": {
                "num_reqs": [32] * num_steps,
                "num_tokens": [512] * num_steps,
                "num_rows_written": [32] * num_steps,
            },
        }
    )


def make_required(
    *moved: int, operation: Operation = ops.GATHER_SLOTS, name: str = "small"
) -> WorkloadRecord:
    """A workload of which an operation must move so many bytes in each step, half of them read."""
    halves = [each // 2 for each in moved]
    required = RequiredBytes(read=halves, written=halves)
    return make_workload(name, len(moved)).model_copy(
        update={"required_bytes": {str(operation): required}}
    )


def make_measurement(
    series: Series | Quantity,
    samples: Sequence[Sequence[float]],
    rounds: Sequence[int] | None = None,
    **fields: Any,
) -> Measurement:
    """Samples of a series, or of the default one of a quantity; by default of rounds 0, 1, 2, …"""
    full = series_of(series) if isinstance(series, Quantity) else series
    return Measurement(
        **full.model_dump(),
        rounds=list(range(len(samples)) if rounds is None else rounds),
        samples=[list(steps) for steps in samples],
        **fields,
    )


def make_rounds(
    count: int, instances: int = 8, arms: Sequence[str] = ("baseline", "fused"), **changes: Any
) -> RoundLog:
    """A log of timed rounds in pairs, with instances in turn, of which none was discarded."""
    fields: dict[str, Any] = {
        "arms": list(arms),
        "kind": [RoundKind.TIMED] * count,
        "instance": [index // 2 % instances for index in range(count)],
        "place": [index % 2 for index in range(count)],
        "seconds": [0.01 * index for index in range(count)],
        "sm_clock_mhz": [1980] * count,
        "discarded": [None] * count,
    }
    return RoundLog(**(fields | changes))


def make_calibration(
    figures: Mapping[str, Sequence[float]] | None = None,
    intercepts_us: Mapping[Method, float] | None = None,
    **fields: Any,
) -> Calibration:
    """A calibration with these figures, and lines of gradient 1 with these intercepts."""
    return Calibration(
        seconds=1.5,
        figures=[
            Figure(name=name, what=f"the {name}", samples=list(samples))
            for name, samples in (figures or {}).items()
        ],
        lines=[
            DeviceLine(
                method=method,
                set_us=[3.0, 5.0, 10.0, 50.0],
                reported_us=[[length + added] * 3 for length in (3.0, 5.0, 10.0, 50.0)],
            )
            for method, added in (intercepts_us or {}).items()
        ],
        **fields,
    )


def make_case(
    case: str = "small",
    operation: Operation = ops.GATHER_SLOTS,
    samples: Mapping[Quantity, Sequence[Sequence[float]]]
    | Mapping[Series | Quantity, Sequence[Sequence[float]]]
    | None = None,
    *,
    num_steps: int = 1,
    workload: WorkloadRecord | None = None,
    launches: LaunchCensus | None = None,
    **fields: Any,
) -> CaseResult:
    """A case that is ok, with `samples[round][step]` per series; `fields` are others of it."""
    longest = max((len(rounds) for rounds in (samples or {}).values()), default=0)
    logged = {"rounds": make_rounds(longest)} if longest else {}
    return CaseResult(
        key=f"{operation}/{case}",
        case=case,
        operation=operation,
        workload=workload or make_workload(case, num_steps),
        status=Status.OK,
        check=CheckReport(steps=num_steps, buffers=["slot_mappings"]),
        launches=launches,
        measurements=[
            make_measurement(series, rounds) for series, rounds in (samples or {}).items()
        ],
        **(logged | fields),
    )


def make_failed_case(
    case: str = "small",
    operation: Operation = ops.GATHER_SLOTS,
    message: str = "slot_mappings[0, 3] is 17; the reference has 16",
    *,
    code: ReasonCode = ReasonCode.WRONG_RESULT,
    status: Status = Status.FAILED,
) -> CaseResult:
    """A case that failed its check, or ended otherwise than ok."""
    reason = Reason(code=code, message=message)
    passed = make_case(case, operation)
    return passed.model_copy(update={"status": status, "reason": reason, "check": None})


def make_result(
    variant: str = "baseline",
    cases: Sequence[CaseResult] = (),
    *,
    environment: Environment | None = None,
    complete: bool = True,
    run_id: str = "quick-20260102T030405Z",
    config: str = "quick",
    plan: Plan | None = None,
    calibration: Calibration | None = None,
    crashes: Sequence[Crash] = (),
    suite: SuiteInfo | None = None,
) -> VariantResult:
    """The result of a variant with these cases."""
    return VariantResult(
        run_id=run_id,
        created=CREATED,
        complete=complete,
        tool=Tool(version="0.1.0", command=["bt-bench", "sweep", "configs/quick.yaml"]),
        environment=environment or make_environment(),
        config=config,
        plan=plan or Plan(rounds=3, warmup_rounds=1),
        calibration=calibration,
        suite=suite,
        variant=VariantInfo(name=variant, summary=f"the {variant} arm", source_sha256="ab" * 32),
        crashes=list(crashes),
        cases=list(cases),
    )


def make_crash(during: str = "step/small", *, known: bool = True) -> Crash:
    """A crash that did not come back."""
    message = "while measured: the worker was ended by SIGSEGV"
    return Crash(
        during=during, reason=Reason(code=ReasonCode.CRASHED, message=message), known=known
    )
