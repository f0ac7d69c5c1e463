"""`bt-bench overhead`."""

from __future__ import annotations

from typing import Annotated

import typer

from bt_bench.base.errors import ExitCode
from bt_bench.cli.exits import say
from bt_bench.cli.options import JsonOption, print_json

FEWER = (1, 2, 4, 8)


def overhead(
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds",
            min=1,
            max=100_000,
            metavar="N",
            help="Number of rounds; each round times all routes once.",
        ),
    ] = 50,
    as_json: JsonOption = False,
) -> ExitCode:
    """Measure the host's cost of launching an empty kernel, by each route.

    Also shows the saving of a step with fewer launches, by each route. Needs a GPU.

    Examples:
    - `bt-bench overhead`
    - `bt-bench overhead --rounds 200 --json`
    """
    from bt_bench.runs import check_conditions
    from bt_bench.worker import choose_device, leased, read_environment

    say("measuring, which loads torch first")
    choose_device("cuda")
    environment = read_environment("cuda")

    from bt_bench.base import format_number
    from bt_bench.report import Cell, Document, Section, Table, print_document
    from bt_bench.worker.measuring.calibration.overhead import BATCH, measure_overhead, saved_us

    with leased([environment], say):
        check_conditions(environment, profiles=False)
        routes = measure_overhead(rounds)
    if as_json:
        document = {
            "schema_version": 1,
            "environment": environment.model_dump(mode="json"),
            "launches_per_sample": BATCH,
            "routes": [
                {
                    "name": route.name,
                    "what": route.what,
                    "median_us": route.median_us,
                    "samples_us": route.samples_us,
                    "saved_us_by_launches": {str(n): saved_us(route, n) for n in FEWER},
                }
                for route in routes
            ],
        }
        print_json(document)
        return ExitCode.OK
    columns = ("Route", "Per launch (µs)", *(f"{launches} fewer" for launches in FEWER))
    rows = [
        (
            Cell(route.what),
            Cell(format_number(route.median_us)),
            *(Cell(format_number(saved_us(route, launches))) for launches in FEWER),
        )
        for route in routes
    ]
    lead = (
        f"{environment.gpus[0].name}, torch {environment.torch}, Triton {environment.triton}; "
        "medians of host time.",
        "The last columns: host time that a step saves with so many launches fewer, in µs.",
    )
    table = Table(columns, tuple(rows), num_text_columns=1)
    print_document(Document("Launch overhead", lead, (Section("Per launch", (table,)),)))
    return ExitCode.OK
