"""`calibrate --gpus`: the lottery, by how much the GPUs of a host differ in the same work."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.base.errors import ExitCode
from bt_bench.base.names import DeviceChoice
from bt_bench.cli.exits import say
from bt_bench.cli.options import print_json

if TYPE_CHECKING:
    from bt_bench.report import Document
    from bt_bench.results import Calibration, Environment

_TITLES = {
    "null_host": "An empty kernel, host_us",
    "null_step": "An empty kernel, step_us",
    "null_gpu": "An empty kernel, gpu_us",
}


def show_lottery(devices: Sequence[DeviceChoice], out: Path | None, as_json: bool) -> ExitCode:
    """Calibrate devices one after the other, and print by how much they differ.

    Args:
        devices: a value of `--device` for each.
        out: the JSON file to write, if any.
        as_json: print the same as JSON.

    Raises:
        UsageError: for a device that does not exist, or that another command times.
    """
    import json

    from bt_bench.analysis import judge_promises, lottery_apart
    from bt_bench.base import write_text
    from bt_bench.report import print_document

    places = [_calibrated(device) for device in devices]
    apart = lottery_apart([calibration for _, calibration in places])
    verdicts = [judge_promises(calibration) for _, calibration in places]
    document = {
        "schema_version": 1,
        "gpus": [
            {
                "environment": environment.model_dump(mode="json"),
                "calibration": calibration.model_dump(mode="json"),
                "verdicts": [asdict(verdict) for verdict in found],
            }
            for (environment, calibration), found in zip(places, verdicts, strict=True)
        ],
        "apart": apart,
    }
    if out is not None:
        write_text(out, json.dumps(document) + "\n")
    if as_json:
        print_json(document)
    else:
        print_document(_document(places, apart))
    missed = False
    for (environment, _), found in zip(places, verdicts, strict=True):
        for verdict in (each for each in found if not each.kept):
            missed = True
            where = environment.gpu_label or environment.device
            print(f"failed self-check: {where}: {verdict.finding}", file=sys.stderr)
    return ExitCode.CHECK_FAILED if missed else ExitCode.OK


def _calibrated(device: DeviceChoice) -> tuple[Environment, Calibration]:
    from bt_bench.results import Plan
    from bt_bench.runs import check_conditions
    from bt_bench.runs.progress import News
    from bt_bench.worker import Calibrate, Supervisor, WorkerSetup, leased
    from bt_bench.worker.process.main import serve

    say(f"calibrating {device}, which loads torch first and takes some seconds")
    with Supervisor(WorkerSetup(device, (), Plan()), serve) as worker:
        environment = worker.hello.environment
        with leased([environment], say):
            check_conditions(environment)
            calibration = worker.run(Calibrate(), (), News(say)).value
    assert calibration is not None
    return environment, calibration


def _document(
    places: Sequence[tuple[Environment, Calibration]], apart: dict[str, float]
) -> Document:
    from bt_bench.analysis import device_name, lottery_figures
    from bt_bench.base import format_number, format_share
    from bt_bench.report import ABSENT, Cell, Document, Section, Table

    figures = [lottery_figures(calibration) for _, calibration in places]
    names = [
        environment.gpu_label or f"device {number}"
        for number, (environment, _) in enumerate(places, start=1)
    ]
    rows = [
        (
            Cell(_title(name)),
            *(Cell(format_number(of[name]) if name in of else ABSENT) for of in figures),
            Cell(format_share(share)),
        )
        for name, share in apart.items()
    ]
    environment = places[0][0]
    devices = dict.fromkeys(device_name(each) or "an unknown device" for each, _ in places)
    most = max((share for name, share in apart.items() if name not in _TITLES), default=None)
    lead = [f"{', '.join(devices)}, torch {environment.torch}, Triton {environment.triton}."]
    if most is None:
        lead.append("No GPU, so there is no lottery.")
    else:
        lead.append(
            f"Copies on these GPUs differ by up to {format_share(most)}. `compare` finds no "
            "difference in device times between two of them that theirs may account for."
        )
    sections = []
    if rows:
        columns = ("Medians in µs", *names, "apart")
        sections = [Section("The same work", (Table(columns, tuple(rows), num_text_columns=1),))]
    return Document("Lottery of the GPUs", tuple(lead), tuple(sections))


def _title(name: str) -> str:
    from bt_bench.base import format_bytes

    if name in _TITLES:
        return _TITLES[name]
    return f"A copy that moves {format_bytes(int(name.split('_')[1]))}, gpu_us"
