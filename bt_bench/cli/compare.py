"""`bt-bench compare`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.cli.options import JsonOption
from bt_bench.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from bt_bench.model import VariantResult


class Format(StrEnum):
    """What `compare` can print."""

    TABLE = "table"
    MD = "md"
    JSON = "json"


def compare(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C …]", help="Result files or run folders; - is a result on stdin."
        ),
    ],
    output: Annotated[Format, typer.Option("--format", help="What to print.")] = Format.TABLE,
    ignore_device: Annotated[
        bool, typer.Option("--ignore-device", help="Compare across devices and versions.")
    ] = False,
    ignore_plan: Annotated[
        bool, typer.Option("--ignore-plan", help="Compare results of different plans.")
    ] = False,
    as_json: JsonOption = False,
) -> ExitCode:
    """Compare result files, case by case, with the first (or the one called baseline).

    Needs neither torch nor a GPU. Results of different devices, versions or plans are refused
    with exit code 4.

    Examples:
    - `bt-bench compare reports/run/baseline.json reports/run/fused.json`
    - `bt-bench compare reports/run --format md`
    """
    from bt_bench.compare import compare as compare_results
    from bt_bench.report.compare_report import render_compare

    read = [result for argument in results for result in _read(argument)]
    if len(read) < 2:
        raise UsageError(
            f"{results[0]} holds one result; expected two or more to compare: result files, or a "
            "run folder"
        )
    comparison = compare_results(read, ignore_device=ignore_device, ignore_plan=ignore_plan)
    sys.stdout.write(render_compare(comparison, "json" if as_json else output.value))
    return ExitCode.OK


def _read(argument: str) -> list[VariantResult]:
    from bt_bench.store import read_result, read_run

    if argument != "-" and Path(argument).is_dir():
        found = read_run(Path(argument))
        if not found:
            raise UsageError(f"{argument}: holds no result file; expected a run folder")
        return found
    return [read_result(argument)]
