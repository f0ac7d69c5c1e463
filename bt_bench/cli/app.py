"""The table of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from bt_bench import __version__
from bt_bench.cli.calibrate import calibrate
from bt_bench.cli.check import check
from bt_bench.cli.compare import compare
from bt_bench.cli.env import env
from bt_bench.cli.exits import reporting_errors
from bt_bench.cli.gate.command import gate
from bt_bench.cli.listing import list_
from bt_bench.cli.overhead import overhead
from bt_bench.cli.schema import schema
from bt_bench.cli.selfcheck import selfcheck
from bt_bench.cli.sweep import sweep
from bt_bench.cli.workload import workload

MEASURE = "Measure"
READ = "Read"

app = typer.Typer(
    name="bt-bench",
    help="Measures and compares the block-table kernels of LLM inference engines.",
    epilog="Start with: bt-bench sweep quick",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bt-bench {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Measures and compares the block-table kernels of LLM inference engines."""


for _name, _function, _panel in (
    ("sweep", sweep, MEASURE),
    ("check", check, MEASURE),
    ("calibrate", calibrate, MEASURE),
    ("overhead", overhead, MEASURE),
    ("gate", gate, MEASURE),
    ("compare", compare, READ),
    ("selfcheck", selfcheck, READ),
    ("workload", workload, READ),
    ("list", list_, READ),
    ("env", env, READ),
    ("schema", schema, READ),
):
    app.command(_name, rich_help_panel=_panel)(reporting_errors(_function))
