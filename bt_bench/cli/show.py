"""`bt-bench show`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base import joined, names_given
from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.cli import completion
from bt_bench.cli.exits import visible
from bt_bench.cli.loading import latest_run
from bt_bench.cli.next_steps import next_lines
from bt_bench.cli.options import JsonOption, RedactOption, recorded_option
from bt_bench.cli.outputs import parse_outputs, write_output
from bt_bench.cli.profile.places import case_folders
from bt_bench.cli.profile.shown import show_profile

if TYPE_CHECKING:
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
        recorded_option(
            "-k",
            "Show only the cases whose name matches one of these patterns, such as `a,b*`.",
            completion.recorded_cases,
        ),
    ] = None,
    variants: Annotated[
        str | None,
        recorded_option(
            "--variants",
            "Show only these variants beside the baseline.",
            completion.recorded_variants,
        ),
    ] = None,
    operations: Annotated[
        str | None,
        recorded_option(
            "--operations", "Show only these operations.", completion.recorded_operations
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
    redact: RedactOption = False,
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
    import json  # late, as `--help` needs none

    from bt_bench.analysis import Selection
    from bt_bench.api.reading import read_results
    from bt_bench.base import STDIN, like, redactor_here
    from bt_bench.report import print_run, render_comparison, render_run, run_json
    from bt_bench.results import redacted

    outputs = parse_outputs(formats, as_json, FORMATS)
    run = latest_run() if run is None else run
    selects = any(given is not None for given in (select, variants, operations, formats))
    known = redactor_here([Path(run)]) if redact else None
    if show_profile(run, whole=whole, as_json=as_json, selects=selects, redact=known):
        return ExitCode.OK
    if run != STDIN and not Path(run).exists():
        raise UsageError(
            f"{run} does not exist; expected a run folder, a result file or a profile"
            f"{like(Path(run))}"
        )
    results = read_results(run)
    if known is not None:
        results = redacted(results, known)
    selection = Selection(
        joined(select),
        names_given("--operations", operations),
        names_given("--variants", variants),
    )
    planned = None if all(result.complete for result in results) else _planned_cases(Path(run))
    for output in outputs:
        if output.name == "json":
            write_output(output, json.dumps(run_json(results, selection), indent=2) + "\n")
        elif output.name == "md":
            write_output(output, render_comparison(results, planned, selection))
        elif output.path is not None:
            text = render_run(results, selection, planned_cases=planned, whole=whole)
            write_output(output, text)
        else:  # stdout may be a terminal
            print_run(results, selection, planned_cases=planned, whole=whole)
            if not whole and not redact and Path(run).is_dir():
                _print_folders(Path(run), results)
    return ExitCode.OK


def _print_folders(run: Path, results: Sequence[VariantResult]) -> None:
    print("", *next_lines(run, results), sep="\n")
    if profiles := case_folders(run):
        print(visible(f"Profile: {', '.join(f'{folder}/' for folder in profiles)}"))


def _planned_cases(folder: Path) -> int | None:
    """Return the number of cases planned for the run; `None` if its config no longer gives it."""
    from bt_bench.config import planned_cases

    try:
        return planned_cases(folder)
    except UsageError:
        return None
