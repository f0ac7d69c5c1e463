"""`bt-bench check`."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.cli.exits import visible
from bt_bench.cli.options import (
    DeviceOption,
    JsonOption,
    KernelsOption,
    OperationsOption,
    SelectOption,
    SetOption,
    SuiteOption,
    VariantsOption,
    VllmSourceOption,
    choose_variants,
    kernel_folders,
    load_spec,
    print_json,
    worker_for,
)
from bt_bench.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bt_bench.results import Crash
    from bt_bench.runs import Outcome


def check(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG", help="A YAML file, the name of a stock config, or - for stdin."
        ),
    ] = "quick",
    variants: VariantsOption = None,
    operations: OperationsOption = None,
    select: SelectOption = None,
    overrides: SetOption = None,
    device: DeviceOption = None,
    kernels: KernelsOption = None,
    vllm_source: VllmSourceOption = None,
    suite: SuiteOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Compare variants with the reference, and time nothing.

    Every variant runs through small random workloads that reach the corners, then through the
    workloads of the config. Whole buffers are compared, exactly. They run in a process of their
    own, so that one that crashes fails alone. Exit code 5 means that one differs, raised, crashed
    or hung. Workloads that need a feature that a variant lacks are skipped for it; that is not a
    failure.

    Examples:
    - `bt-bench check`
    - `bt-bench check origin --variants fused`
    - `bt-bench check quick --kernels ./my_kernels --variants mine`
    """
    spec = load_spec(
        config,
        suite=suite,
        variants=variants,
        operations=operations,
        select=select,
        overrides=overrides,
    )
    entries = choose_variants(
        spec, kernel_folders(kernels), vllm_source, by_name=variants is not None
    )

    from bt_bench.analysis import crash_text
    from bt_bench.runs import check_memory, check_spec
    from bt_bench.worker import Noticing

    outcomes: list[Outcome] = []
    warnings: list[str] = []

    def warn(arms: Sequence[str], crash: Crash) -> None:
        whose = f"{arms[0]}, " if crash.known else ""
        warnings.append(f"{whose}{crash_text(crash)}")
        print(f"bt-bench: warning: {visible(warnings[-1])}", file=sys.stderr, flush=True)

    with worker_for(spec, entries, device) as worker:
        kind = worker.hello.device
        check_memory(spec, len(entries), worker.hello.available_bytes)
        for outcome in check_spec(Noticing(worker, warn), spec, [entry.name for entry in entries]):
            outcomes.append(outcome)
            if not as_json:
                print(_line(outcome), flush=True)
    counts = Counter(map(_status, outcomes))
    if as_json:
        print_json(_document(kind, outcomes, warnings))
    else:
        for entry in entries:
            if entry.opponent is not None and entry.opponent.note:
                print(f"{entry.name} {entry.opponent.note}")
        skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
        print(f"{counts['ok']} passed, {counts['failed']} failed{skipped}, on {kind}")
    return ExitCode.CHECK_FAILED if counts["failed"] else ExitCode.OK


def _status(outcome: Outcome) -> str:
    if outcome.failure is not None:
        return "failed"
    return "ok" if outcome.reason is None else "skipped"


def _line(outcome: Outcome) -> str:
    what = f"{outcome.variant} · {outcome.workload} · {outcome.operation}"
    if outcome.reason is None:
        return f"ok      {what}"
    if outcome.failure is None:
        return f"skipped {what} · {outcome.reason.message}"
    return f"FAILED  {what}\n        {outcome.reason.code}: {outcome.reason.message}"


def _document(device: str, outcomes: list[Outcome], warnings: list[str]) -> dict[str, object]:
    return {
        "schema_version": 1,
        "device": device,
        "warnings": warnings,
        "checks": [
            {
                "variant": outcome.variant,
                "workload": outcome.workload,
                "operation": outcome.operation,
                "status": _status(outcome),
                "reason": outcome.reason.model_dump() if outcome.reason else None,
                "steps": outcome.steps,
            }
            for outcome in outcomes
        ],
    }
