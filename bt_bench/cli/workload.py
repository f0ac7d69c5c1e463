"""`bt-bench workload`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bt_bench.cli.options import (
    ConfigArgument,
    JsonOption,
    SelectOption,
    SetOption,
    load_spec,
    print_json,
)
from bt_bench.errors import ExitCode

if TYPE_CHECKING:
    from bt_bench.workloads import Description


def workload(
    config: ConfigArgument,
    select: SelectOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Show what the workloads of a config are like, before anything is timed.

    Requests, tokens and writes per step, row lengths, block reuse. A trace is described as a
    whole and for the window that a sweep replays. Needs no GPU.

    Examples:
    - `bt-bench workload azure_conv`
    - `bt-bench workload production -k 'decode*' --json`
    """
    spec = load_spec(config, select=select, overrides=overrides)
    documents = []
    for case in spec.cases:
        description = case.parameters.describe()
        if as_json:
            documents.append({"case": case.name} | description.model_dump(mode="json"))
        else:
            _print(case.name, description)
    if as_json:
        print_json({"schema_version": 1, "cases": documents})
    return ExitCode.OK


def _print(name: str, description: Description) -> None:
    from bt_bench.report import print_document, workload_document

    print_document(workload_document(name, description))
    print()
