"""`bt-bench merge`, of runs or of gates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base.errors import ExitCode, UsageError, counted, listed
from bt_bench.cli.exits import say, visible
from bt_bench.cli.gate.common import code_of
from bt_bench.cli.next_steps import command
from bt_bench.cli.options import JsonOption, print_json
from bt_bench.cli.outputs import FormatOption, Output, parse_outputs, write_outputs
from bt_bench.cli.pages import write_gate_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bt_bench.runs import Merged, MergeRequest


def merge(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="The folders of the runs, or of the gates, of all shards, in any order.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write the merged run or gate to DIR. DIR must not exist.",
            show_default=False,
        ),
    ],
    allow_partial: Annotated[
        bool,
        typer.Option(
            "--allow-partial",
            help="Merge although shards or cases are missing; the result is marked as partial, "
            "and a gate does not pass.",
        ),
    ] = False,
    formats: FormatOption = None,
    show_all: Annotated[
        bool,
        typer.Option("--all", help="List all verdicts of gates, and how they were decided."),
    ] = False,
    as_json: JsonOption = False,
) -> ExitCode:
    """Merge the runs of the shards of a sweep into one run, or gates of shards into one gate.

    The runs must be of one config, measured by the same code; GPUs and hosts may differ, and each
    case keeps its own. Every case must be there once. Needs neither torch nor a GPU. Exits with 4
    if the runs do not belong together or something is missing, with 5 if a variant failed a case.
    Verdicts of gates are taken as they are, and the exit code is the worst of the shards'.

    Examples:
    - `bt-bench merge shards/1 shards/2 --out reports/all`
    - `bt-bench merge shards/* --out reports/all --allow-partial`
    - `bt-bench merge gates/* --out gate --format github --format junit=gate.xml`
    """
    from bt_bench.runs import MergeRequest, is_gate
    from bt_bench.runs import merge as merge_runs

    request = MergeRequest(runs, out, allow_partial)
    if any(map(is_gate, runs)):
        return _merge_gates(request, parse_outputs(formats, as_json), show_all)
    if formats or show_all:
        option = "--format" if formats else "--all"
        raise UsageError(
            f"{option} is for the verdicts of gates, and {runs[0]} is none's folder; leave it out"
        )
    merged = merge_runs(request)
    for line in merged.missing:
        say(f"warning: {line}")
    if as_json:
        print_json(_summary(merged))
    else:
        partial = ", PARTIAL" if merged.missing else ""
        parts = len(merged.header.shards)
        print(
            visible(
                f"Merged {counted(parts, 'shard')}: {counted(merged.cases, 'result')} of "
                f"{counted(len(merged.variants), 'variant')}{partial}, in {merged.folder}/"
            )
        )
        print(visible(f"Measured on {listed(_machines(merged))}"))
        print(visible(f"Next:    {command('show', merged.folder)}"))
    return ExitCode.CHECK_FAILED if _count(merged, "failed") else ExitCode.OK


def _merge_gates(request: MergeRequest, outputs: Sequence[Output], show_all: bool) -> ExitCode:
    from bt_bench.analysis import worst_code
    from bt_bench.runs import merge_gates

    merged = merge_gates(request)
    write_outputs(merged.judged, outputs, show_all)
    write_gate_page(merged.judged, merged.folder)
    rounds = "rounds and " * (merged.judged.power is not None)
    say(f"{rounds}verdicts of {counted(len(merged.shards), 'shard')} are in {merged.folder}/")
    for line in merged.missing:
        say(f"error: {line}")
    fail_on, power = merged.asked.fail_on, merged.asked.require_power
    codes = [code_of(shard.judged, fail_on, require_power=power) for shard in merged.shards]
    if merged.missing:
        codes.append(ExitCode.NOT_COMPARABLE)
    return worst_code(codes)


def _machines(merged: Merged) -> list[str]:
    """Return the devices, each with the number of shards that it measured."""
    from bt_bench.analysis import device_name

    shards: dict[str, set[object]] = {}
    for part in merged.header.parts or ():
        name = device_name(part.environment) or "an unknown device"
        shards.setdefault(name, set()).add(part.shard)
    return [f"{name} ({counted(len(of), 'shard')})" for name, of in shards.items()]


def _count(merged: Merged, status: str) -> int:
    return sum(number for found, number in merged.statuses.items() if found.value == status)


def _summary(merged: Merged) -> dict[str, object]:
    """Return the document of `--json`, with the keys of a sweep's."""
    return {
        "schema_version": 1,
        "run_id": merged.header.run_id,
        "folder": str(merged.folder),
        "comparison": None,
        "results": {name: str(merged.folder / f"{name}.json") for name in merged.variants},
        "complete": not merged.missing,
        "cases": merged.cases,
        **{name: _count(merged, name) for name in ("failed", "insufficient", "unsupported")},
        "crashes": merged.crashes,
        "shards": [shard.index for shard in merged.header.shards],
        "missing": list(merged.missing),
    }
