"""`bt-bench schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bt_bench.base.errors import ExitCode, UsageError, names_hint
from bt_bench.cli import completion
from bt_bench.cli.options import SuiteOption, print_json, refuse_typed

KINDS = ("result", "config")


def schema(
    ctx: typer.Context,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="The files to describe: result or config.",
            autocompletion=completion.one_of(*KINDS),
        ),
    ] = "result",
    suite: SuiteOption = None,
) -> ExitCode:
    """Print the JSON Schema of a result file, or of a config.

    Editors complete and check a config whose first line is
    `# yaml-language-server: $schema=FILE`, where FILE has its schema. The schema has the parameters
    and operations of one suite.

    Examples:
    - `bt-bench schema > result.schema.json`
    - `bt-bench schema config > config.schema.json`
    - `bt-bench --suite my_suite schema config > my_suite/configs/config.schema.json`
    """
    if kind == "config":
        from bt_bench.config import config_schema
        from bt_bench.protocol import SuiteRef, find_suite

        print_json(config_schema(find_suite(suite, Path.cwd()) if suite else SuiteRef()))
    elif kind == "result":
        from bt_bench.results import result_schema

        refuse_typed(ctx, ["suite"], "{} has no effect on the schema of a result; leave it out")
        print_json(result_schema())
    else:
        raise UsageError(f"unknown KIND {kind!r}; {names_hint(kind, KINDS)}")
    return ExitCode.OK
