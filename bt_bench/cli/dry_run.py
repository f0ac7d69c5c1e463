"""The messages of `bt-bench sweep` before it measures: its plan, and a warning if it takes long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bt_bench.base.errors import ExitCode
from bt_bench.cli.exits import say
from bt_bench.cli.options import extent, print_json
from bt_bench.cli.sharding import extent_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bt_bench.config import SweepSpec
    from bt_bench.results import Division
    from bt_bench.variants import VariantEntry
    from bt_bench.worker import Hello

LONG_S = 600.0


def show_plan(
    spec: SweepSpec,
    entries: Sequence[VariantEntry],
    hello: Hello,
    devices: int,
    as_json: bool,
    division: Division | None = None,
) -> ExitCode:
    """Print the cases that a sweep would run, the memory they need, and the estimated time."""
    from bt_bench.base import format_bytes
    from bt_bench.runs import duration_text, estimate_seconds

    cases = [(case, case.parameters.num_bytes()) for case in spec.cases]
    seconds = estimate_seconds(spec, len(entries), hello.device, devices)
    if as_json:
        plan = {
            "schema_version": 1,
            "device": hello.device,
            "devices": devices,
            "variants": [entry.name for entry in entries],
            "operations": spec.operations,
            "shard": None if division is None else division.shard.model_dump(),
            "plan": spec.plan.model_dump(),
            "estimated_seconds": round(seconds),
            "cases": [
                case.model_dump(exclude_none=True) | {"bytes_per_variant": size}
                for case, size in cases
            ],
        }
        print_json(plan)
        return ExitCode.OK
    several = f" on {devices} devices" if devices > 1 else ""
    print(f"{spec.name} on {hello.device}: {extent(spec, entries)}")
    if division is not None:
        print(f"  {extent_text(division)}")
    print(f"  operations: {', '.join(spec.operations)}")
    print(f"  variants: {', '.join(entry.name for entry in entries)}")
    print(
        f"  time: about {duration_text(seconds)}{several}, an estimate from the plan and the sizes "
        "of the cases"
    )
    for case, size in cases:
        print(f"  {case.name}: {format_bytes(size)} per variant")
    return ExitCode.OK


def warn_if_long(
    spec: SweepSpec, entries: Sequence[VariantEntry], hello: Hello, devices: int
) -> None:
    """Warn on stderr if interpreted kernels would make a sweep long, with ways to shorten it."""
    from bt_bench.runs import duration_text, estimate_seconds

    seconds = estimate_seconds(spec, len(entries), hello.device, devices)
    if hello.device == "cpu" and seconds > LONG_S:
        say(
            f"this sweep may take about {duration_text(seconds)} (an estimate), because "
            "without a GPU all kernels are interpreted. For a shorter one, stop it with Ctrl-C and "
            "sweep 'quick', take fewer cases with -k, or fewer rounds and instances with "
            "--set plan.rounds=5 --set plan.instances=1"
        )
