"""Whole runs with made-up figures, one per kind of report."""

from __future__ import annotations

from factories import (
    make_case,
    make_environment,
    make_failed_case,
    make_launches,
    make_result,
)

from bt_bench.model import CaseResult, LaunchCensus, Quantity, VariantResult
from bt_bench.operation import Operation

HOSTILE_NAME = "a|b <img src=x> & `tick` *bold* [red]\n# title"


def gpu_run() -> list[VariantResult]:
    """Two cases and three variants, one of them slower than the baseline in one case."""
    launches = {
        "baseline": make_launches(["gather", "slots"]),
        "fused": make_launches(["gather_slots"]),
        "fused_apply": make_launches(["gather", "slots", "copy:HtoD"]),
    }
    event_us = {
        ("baseline", "small"): 66.3,
        ("fused", "small"): 24.15,
        ("fused_apply", "small"): 65.9,
        ("baseline", "large_4grp"): 181.25,
        ("fused", "large_4grp"): 40.5,
        ("fused_apply", "large_4grp"): 190.0,
    }
    return [
        make_result(
            variant,
            [
                _timed_case(case, operation, event_us[variant, case], launches[variant])
                for operation in (Operation.APPLY, Operation.STEP, Operation.GATHER_SLOTS)
                for case in ("small", "large_4grp")
            ],
        )
        for variant in launches
    ]


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
                make_case("small", Operation.STAGE, staging, launches=nothing),
                make_case("azure", Operation.STAGE, windows, num_steps=2),
            ],
            environment=environment,
        )
        for variant, census in launches.items()
    ]


def partial_run() -> list[VariantResult]:
    """Interrupted after the first case of the second variant."""
    first, second = (_timed_case(name, Operation.GATHER_SLOTS, 50.0) for name in ("one", "two"))
    return [
        make_result("baseline", [first, second], complete=False),
        make_result("fused", [first], complete=False),
    ]


def failed_run() -> list[VariantResult]:
    """One variant gives a wrong answer, the baseline cannot run one case."""
    small, large = (_timed_case(name, Operation.GATHER_SLOTS, 50.0) for name in ("small", "large"))
    wrong = make_failed_case("small", message="wrong slots:\n# row 3 | column 1 is <17>, not 16")
    return [
        make_result("baseline", [small, make_failed_case("large", message="out of memory")]),
        make_result("fused", [wrong, large]),
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
        case = make_case("azure", Operation.STEP, windows, num_steps=4, launches=census)
        results.append(make_result(variant, [case], config="azure_conv"))
    return results


def three_cases() -> VariantResult:
    """A single step, a window, and a failure."""
    samples = {Quantity.EVENT_US: [[1.5], [2.25], [1e-7]], Quantity.HOST_US: [[3.0]] * 3}
    cases = [
        make_case("one", samples=samples, launches=make_launches(["gather", "slots"])),
        make_case("two", Operation.STEP, {Quantity.STEP_US: [[1.0, 2.0]] * 3}, num_steps=2),
        make_failed_case("three"),
    ]
    return make_result(cases=cases)


def hostile_run() -> list[VariantResult]:
    """Names that would be markup in Markdown, HTML, a terminal or rich."""
    case = _timed_case(HOSTILE_NAME, Operation.GATHER_SLOTS, 50.0)
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
