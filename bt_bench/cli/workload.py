"""`bt-bench workload`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bt_bench.base.errors import ExitCode
from bt_bench.cli.loading import load_spec
from bt_bench.cli.options import (
    ConfigArgument,
    JsonOption,
    SelectOption,
    SetOption,
    SuiteOption,
    print_json,
)

if TYPE_CHECKING:
    from bt_bench.config import CaseSpec
    from bt_bench.protocol import SuiteRef
    from bt_bench.report import Document


def workload(
    config: ConfigArgument,
    select: SelectOption = None,
    overrides: SetOption = None,
    suite: SuiteOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Describe the workloads of a config, before anything is timed.

    Prints the sizes of the steps, further facts of the suite, and the bytes that each operation
    must move. Needs no GPU.

    Examples:
    - `bt-bench workload azure_conv`
    - `bt-bench workload production -k 'decode*' --json`
    """
    from bt_bench.protocol import at_suite
    from bt_bench.report import print_document

    spec = load_spec(config, suite=suite, select=select, overrides=overrides)
    documents = []
    for case in spec.cases:
        described = at_suite(spec.suite, _described, spec.suite, case)
        if as_json:
            documents.append({"case": case.name} | described[0])
        else:
            print_document(described[1])
            print()
    if as_json:
        print_json({"schema_version": 1, "cases": documents})
    return ExitCode.OK


def _described(ref: SuiteRef, case: CaseSpec) -> tuple[dict[str, Any], Document]:
    """Return the description of a workload, as JSON and as a page, with its traffic.

    The description is the suite's own if it has one, else the common one.
    """
    from bt_bench.protocol import build_workload, load_suite, running
    from bt_bench.report import traffic_json, traffic_section, workload_document, workload_json

    suite = load_suite(ref)
    parameters = case.parameters
    workload = build_workload(parameters)
    with running(suite, "describe"):
        own = suite.describe(case.name, parameters, workload)
    values, document = own or (
        workload_json(parameters, workload),
        workload_document(case.name, parameters, workload),
    )
    with running(suite, "traffic"):
        section = traffic_section(suite, workload)
    if section is not None:
        document = replace(document, sections=(*document.sections, section))
    return values | {"traffic": traffic_json(suite, workload)}, document
