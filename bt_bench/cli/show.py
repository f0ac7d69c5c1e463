"""`bt-bench show`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.cli import completion
from bt_bench.cli.exits import visible
from bt_bench.cli.latest import latest_run
from bt_bench.cli.loading import joined, names_given
from bt_bench.cli.next_steps import next_lines
from bt_bench.cli.options import JsonOption
from bt_bench.cli.outputs import Output, parse_outputs, write_output
from bt_bench.cli.profile.places import case_folders
from bt_bench.cli.profile.shown import show_profile

if TYPE_CHECKING:
    from bt_bench.analysis import Selection
    from bt_bench.results import VariantResult

FORMATS = ("table", "md", "json")


def show(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A run folder, a result file, or the folder of a profile; - reads a result from "
            "stdin.",
            show_default="the latest run",
        ),
    ] = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Print all tables, as in comparison.md, not only one screen per operation.",
        ),
    ] = False,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "-k",
            metavar="PATTERNS",
            help="Show only the cases whose name matches one of these patterns, such as `a,b*`.",
            autocompletion=completion.recorded_cases,
            show_default="all",
        ),
    ] = None,
    variants: Annotated[
        str | None,
        typer.Option(
            "--variants",
            metavar="A,B,…",
            help="Show only these variants beside the baseline.",
            autocompletion=completion.recorded_variants,
            show_default="all",
        ),
    ] = None,
    operations: Annotated[
        str | None,
        typer.Option(
            "--operations",
            metavar="A,B,…",
            help="Show only these operations.",
            autocompletion=completion.recorded_operations,
            show_default="all",
        ),
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="FMT[=PATH]",
            help="Print as table, md or json; =FILE writes to a file. May be repeated.",
            show_default="table",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Print the report of a run again: checks, measurements and differences.

    By default who is fastest and by how much, then a screen per operation. The verdicts are the
    ones of `bt-bench compare`, and do not depend on options. Needs neither torch nor a GPU. Always
    exits with 0 if it can be read.

    Examples:
    - `bt-bench show`
    - `bt-bench show reports/run`
    - `bt-bench show reports/run --operations step -k 'medium*' --variants fused`
    - `bt-bench show reports/run --all`
    - `bt-bench show reports/run --format md=report.md`
    - `bt-bench show reports/run/fused.json --json`
    - `bt-bench show reports/profile-origin-20260102T030405Z --all`
    """
    from bt_bench.analysis import Selection

    outputs = parse_outputs(formats, as_json, FORMATS)
    run = latest_run() if run is None else run
    selects = any(given is not None for given in (select, variants, operations, formats))
    if show_profile(run, whole=whole, as_json=as_json, selects=selects):
        return ExitCode.OK
    results = _read(run)
    selection = Selection(
        joined(select),
        names_given("--operations", operations),
        names_given("--variants", variants),
    )
    planned = None if all(result.complete for result in results) else _planned_cases(Path(run))
    for output in outputs:
        if output == Output("table", None):  # stdout may be a terminal
            _print(Path(run), results, selection, planned, whole)
        else:
            write_output(output, _text(output.name, results, selection, planned, whole))
    return ExitCode.OK


def _print(
    run: Path,
    results: Sequence[VariantResult],
    selection: Selection,
    planned: int | None,
    whole: bool,
) -> None:
    from bt_bench.report import print_run

    print_run(results, selection, planned_cases=planned, whole=whole)
    if not whole and run.is_dir():
        print("", *next_lines(run, results), sep="\n")
        if profiles := case_folders(run):
            print(visible(f"Profile: {', '.join(f'{folder}/' for folder in profiles)}"))


def _text(
    name: str,
    results: Sequence[VariantResult],
    selection: Selection,
    planned: int | None,
    whole: bool,
) -> str:
    import json  # late, as `--help` needs none

    from bt_bench.report import render_comparison, render_run, run_json

    if name == "json":
        return json.dumps(run_json(results, selection), indent=2) + "\n"
    if name == "md":
        return render_comparison(results, planned, selection)
    return render_run(results, selection, planned_cases=planned, whole=whole)


def _planned_cases(folder: Path) -> int | None:
    """Return the number of cases planned for the run; `None` if its config no longer gives it."""
    from bt_bench.config import planned_cases

    try:
        return planned_cases(folder)
    except UsageError:
        return None


def _read(run: str) -> list[VariantResult]:
    """Read the results of a run folder, in the order of its config, or the result in a file."""
    from bt_bench.base import STDIN, like
    from bt_bench.config import planned_variants
    from bt_bench.results import RunFolder, read_result, read_run

    path = Path(run)
    if run != STDIN and not path.exists():
        raise UsageError(
            f"{run} does not exist; expected a run folder, a result file or a profile{like(path)}"
        )
    if not path.is_dir():
        return [read_result(run)]
    results = read_run(RunFolder.open(path), planned_variants(path) or ())
    if not results:
        raise UsageError(f"{run} holds no result file; expected a run folder")
    return results
