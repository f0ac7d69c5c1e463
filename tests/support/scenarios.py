"""Whole runs with made-up figures, one per kind of report."""

from __future__ import annotations

import random
from collections.abc import Mapping

from bt_bench.base.names import Operation
from bt_bench.results.run.calibration import Calibration, Injection, L2Flush, LaunchChain
from bt_bench.results.run.case import (
    CaseResult,
    CompiledKernel,
    ControlSpread,
    DiscardCode,
    LaunchCensus,
    Stopping,
    StopReason,
)
from bt_bench.results.run.nouns import (
    Cache,
    LaunchPath,
    Load,
    Method,
    Quantity,
    ReasonCode,
    Series,
    Status,
)
from bt_bench.results.run.result import VariantResult
from bt_bench.results.run.series import series_of
from bt_bench.suites.block_tables import operations as ops
from support.factories import (
    make_calibration,
    make_case,
    make_environment,
    make_failed_case,
    make_launches,
    make_measurement,
    make_result,
    make_rounds,
)

HOSTILE_NAME = "a|b <img src=x> & `tick` *bold* [red]\n# title"


EVENTS_ADD_US = 1.2
PROFILER_ADDS_US = 0.6
SLOPE_ADDS_US = 0.7
LATENCY_US = 8.4
GRAPH_LATENCY_US = 4.3
NUM_ROUNDS = 48


def calibration() -> Calibration:
    """What the figures of `gpu_run` are made with."""
    figures = {
        "empty_call": [0.05, 0.06, 0.05, 0.07, 0.05],
        "timer_tick": [0.03, 0.03, 0.03],
        "event_floor": [5.408, 5.44, 5.472, 5.504, 5.44],
        "event_floor_busy": [1.184, 1.216, 1.216, 1.248, 1.216],
        "synchronize": [3.0, 3.1, 3.0],
        "null_host": [3.0, 3.1, 2.9],
        "null_step": [3.0 + PROFILER_ADDS_US + LATENCY_US] * 3,
        "null_graph_host": [4.0] * 3,
        "replay": [4.0] * 3,
        "replay_profiled": [4.1] * 3,
        "null_graph_step": [4.0 + SLOPE_ADDS_US + GRAPH_LATENCY_US] * 3,
    }
    intercepts = {
        Method.EVENTS: EVENTS_ADD_US,
        Method.PROFILER: PROFILER_ADDS_US,
        Method.GRAPH_SLOPE: SLOPE_ADDS_US,
    }
    return make_calibration(
        figures,
        intercepts,
        chains=[LaunchChain(launched=length, counted=length) for length in (2, 4, 8)],
        injection=Injection(
            pause_us=20.0,
            delay_us=20.0,
            without={
                Quantity.HOST_US: [3.0],
                Quantity.STEP_US: [25.0],
                Quantity.GPU_US: [10.0 + PROFILER_ADDS_US],
            },
            with_delay={
                Quantity.HOST_US: [23.0],
                Quantity.STEP_US: [45.0],
                Quantity.GPU_US: [10.0 + PROFILER_ADDS_US],
            },
        ),
        flush=L2Flush(
            l2_bytes=60 << 20,
            flushed_bytes=120 << 20,
            read_bytes=8 << 20,
            hot=[3.0, 3.1, 3.0],
            cold=[5.0, 5.1, 5.0],
        ),
    )


def gpu_run() -> list[VariantResult]:
    """Two cases and three variants: one like the baseline in one case, slower in the other.

    The methods disagree on `fused_apply` in `large_4grp`, and there its budget does not close.
    """
    launches = {
        "baseline": make_launches(["gather", "slots"]),
        "fused": make_launches(["gather_slots"]),
        "fused_apply": make_launches(["gather", "slots", "clear"]),
    }
    event_us = {
        ("baseline", "small"): 66.3,
        ("fused", "small"): 24.15,
        ("fused_apply", "small"): 66.2,
        ("baseline", "large_4grp"): 181.25,
        ("fused", "large_4grp"): 40.5,
        ("fused_apply", "large_4grp"): 190.0,
    }
    return [
        make_result(
            variant,
            [
                _measured_case(variant, case, operation, event_us[variant, case], launches[variant])
                for operation in (ops.APPLY, ops.STEP, ops.GATHER_SLOTS)
                for case in ("small", "large_4grp")
            ],
            calibration=calibration(),
        )
        for variant in launches
    ]


def _measured_case(
    variant: str, case: str, operation: Operation, event_us: float, launches: LaunchCensus
) -> CaseResult:
    """A case with all series, over rounds of eight instances, with a little noise."""
    odd = (variant, case) == ("fused_apply", "large_4grp")
    times = _times(event_us, launches.totals()[0], 12.0 if odd else 0.0)
    rng = random.Random(f"{variant} {case} {operation}")
    log = make_rounds(NUM_ROUNDS, arms=["baseline", "baseline (copy)", "fused", "fused_apply"])
    result = make_case(
        case,
        operation,
        launches=launches,
        rounds=log,
        stopping=Stopping(
            reason=StopReason.PRECISE if case == "small" else StopReason.TIME,
            rounds=NUM_ROUNDS if case == "small" else 2 * NUM_ROUNDS,
            discarded={} if case == "small" else {DiscardCode.CLOCK: 2},
            seconds=1.25,
            half_widths={Quantity.HOST_US: 0.008, Quantity.STEP_US: 0.01},
        ),
        compiled=[
            CompiledKernel(name="gather", hashes=[case[:2]], registers=[32], spills=[0]),
            CompiledKernel(name="slots", hashes=["aa"], registers=[24], spills=[0]),
        ],
    )
    luck = [rng.uniform(0.99, 1.01) for _ in range(8)]
    measurements = [
        make_measurement(
            series,
            [
                [round(value * luck[instance] * rng.uniform(0.995, 1.005), 3)]
                for instance in log.instance
            ],
        )
        for series, value in times.items()
    ]
    spreads = [
        ControlSpread(series=series, arm="baseline (copy)", difference_us=round(0.002 * value, 3))
        for series, value in times.items()
        if variant == "baseline"
    ]
    return result.model_copy(update={"measurements": measurements, "control_spreads": spreads})


def _times(event_us: float, kernels: int, odd_us: float) -> Mapping[Series, float]:
    """Times that fit each other, but for `odd_us` in a step and in the event time when busy."""
    device = 0.1 * event_us
    last = device / kernels
    host, compiled, direct, graph = (share * event_us for share in (0.9, 0.6, 0.3, 0.1))
    slope = device + kernels * (SLOPE_ADDS_US - PROFILER_ADDS_US)
    times = {
        series_of(Quantity.EVENT_US): event_us,
        series_of(Quantity.HOST_US): host,
        series_of(Quantity.STAGE_US): 0.2 * event_us,
        series_of(Quantity.STEP_US): host + last + LATENCY_US + 1.0 + 2 * odd_us,
        series_of(Quantity.PIPELINED_US): 0.95 * event_us,
        series_of(Quantity.GPU_US): device,
        series_of(Quantity.SPAN_US): 1.5 * device,
        series_of(Quantity.GAP_US): 0.5 * device,
        series_of(Quantity.LAST_US): last,
        _path(Quantity.HOST_US, LaunchPath.COMPILED): compiled,
        _path(Quantity.STEP_US, LaunchPath.COMPILED): compiled + last + LATENCY_US + 0.5,
        _path(Quantity.HOST_US, LaunchPath.DIRECT): direct,
        _path(Quantity.STEP_US, LaunchPath.DIRECT): direct + last + LATENCY_US + 0.4,
        _path(Quantity.HOST_US, LaunchPath.GRAPH): graph,
        _path(Quantity.STEP_US, LaunchPath.GRAPH): graph + slope + GRAPH_LATENCY_US + 0.2,
        _path(Quantity.EVENT_US, LaunchPath.GRAPH): slope + 2.0,
        series_of(Quantity.GPU_US, launch_path=LaunchPath.GRAPH, method=Method.GRAPH_SLOPE): slope,
    }
    for l2, factor in ((Cache.HOT, 1.1), (Cache.COLD, 1.6)):
        busy = factor * device
        times |= {
            series_of(Quantity.EVENT_US, load=Load.BUSY, l2=l2): (
                busy + EVENTS_ADD_US - PROFILER_ADDS_US + odd_us
            ),
            series_of(Quantity.HOST_US, load=Load.BUSY, l2=l2): 1.02 * host,
            series_of(Quantity.GPU_US, load=Load.BUSY, l2=l2): 0.95 * busy,
            series_of(Quantity.SPAN_US, load=Load.BUSY, l2=l2): busy,
            series_of(Quantity.GAP_US, load=Load.BUSY, l2=l2): 0.05 * busy,
        }
    return times


def _path(quantity: Quantity, launch_path: LaunchPath) -> Series:
    return series_of(quantity, launch_path=launch_path)


def cpu_run() -> list[VariantResult]:
    """No GPU: launches, and staging times of the operations that stage."""
    environment = make_environment("cpu")
    nothing = make_launches([], counted_by="interpreter")
    staging = {Quantity.STAGE_US: [[8.5], [8.0], [9.25]]}
    windows = {Quantity.STAGE_US: [[10.0, 20.0], [12.0, 22.0], [11.0, 21.0]]}
    launches = {
        "baseline": make_launches(["gather", "slots"], counted_by="interpreter"),
        "fused": make_launches(["gather_slots"], counted_by="interpreter"),
    }
    return [
        make_result(
            variant,
            [
                make_case("small", samples=staging, launches=census),
                make_case("small", ops.STAGE, staging, launches=nothing),
                make_case("azure", ops.STAGE, windows, num_steps=2),
            ],
            environment=environment,
        )
        for variant, census in launches.items()
    ]


def partial_run() -> list[VariantResult]:
    """Interrupted after the first case of the second variant."""
    first, second = (_timed_case(name, ops.GATHER_SLOTS, 50.0) for name in ("one", "two"))
    return [
        make_result("baseline", [first, second], complete=False),
        make_result("fused", [first], complete=False),
    ]


def failed_run() -> list[VariantResult]:
    """A wrong answer, a case that does not fit, and one of which too few rounds are left."""
    small, large, warm = (
        _timed_case(name, ops.GATHER_SLOTS, 50.0) for name in ("small", "large", "warm")
    )
    wrong = make_failed_case("small", message="wrong slots:\n# row 3 | column 1 is <17>, not 16")
    disturbed = make_failed_case(
        "warm",
        message="40 of 48 rounds were discarded: throttled",
        code=ReasonCode.DISTURBED,
        status=Status.INSUFFICIENT,
    )
    too_large = make_failed_case("large", message="out of memory", code=ReasonCode.OUT_OF_MEMORY)
    return [
        make_result("baseline", [small, too_large, warm]),
        make_result("fused", [wrong, large, disturbed]),
    ]


def trace_run() -> list[VariantResult]:
    """A window of four steps, in which launches differ from step to step."""
    steps = {
        "baseline": make_launches(
            ["gather", "slots"],
            ["apply", "gather", "slots"],
            ["apply", "apply", "gather", "slots"],
            ["gather", "slots"],
        ),
        "fused": make_launches(
            ["fused"], ["fused", "copy:HtoD"], ["fused", "copy:HtoD"], ["fused"]
        ),
    }
    results = []
    for variant, census in steps.items():
        scale = 1.0 if variant == "baseline" else 0.5
        windows = {
            quantity: [[scale * base * step for step in (1.0, 2.0, 8.0, 1.5)] for base in bases]
            for quantity, bases in {
                Quantity.EVENT_US: (40.0, 42.0, 41.0),
                Quantity.HOST_US: (30.0, 31.0, 32.0),
                Quantity.STAGE_US: (5.0, 6.0, 5.5),
                Quantity.STEP_US: (60.0, 61.0, 75.0),
            }.items()
        }
        case = make_case("azure", ops.STEP, windows, num_steps=4, launches=census)
        results.append(make_result(variant, [case], config="azure_conv"))
    return results


def three_cases() -> VariantResult:
    """A single step, a window, and a failure."""
    samples = {Quantity.EVENT_US: [[1.5], [2.25], [1e-7]], Quantity.HOST_US: [[3.0]] * 3}
    cases = [
        make_case("one", samples=samples, launches=make_launches(["gather", "slots"])),
        make_case("two", ops.STEP, {Quantity.STEP_US: [[1.0, 2.0]] * 3}, num_steps=2),
        make_failed_case("three"),
    ]
    return make_result(cases=cases)


def hostile_run() -> list[VariantResult]:
    """Names that would be markup in Markdown, HTML, a terminal or rich."""
    case = _timed_case(HOSTILE_NAME, ops.GATHER_SLOTS, 50.0)
    failed = make_failed_case("\x1b[31mred", message="<script>alert(1)</script>\n\n---\n| x |")
    return [
        make_result("baseline", [case, failed], config=HOSTILE_NAME),
        make_result("_fused_|", [case, failed], config=HOSTILE_NAME),
    ]


def _timed_case(
    name: str, operation: Operation, event_us: float, launches: LaunchCensus | None = None
) -> CaseResult:
    """A case whose other times follow from its event time, over three rounds."""
    rounds = (0.98, 1.0, 1.5)
    shares = {
        Quantity.EVENT_US: 1.0,
        Quantity.HOST_US: 0.9,
        Quantity.STAGE_US: 0.2,
        Quantity.GPU_US: 0.1,
        Quantity.STEP_US: 1.3,
    }
    samples = {
        quantity: [[event_us * share * factor] for factor in rounds]
        for quantity, share in shares.items()
    }
    return make_case(name, operation, samples, launches=launches)
