"""`bt-bench calibrate`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.base.names import DeviceChoice
from bt_bench.cli.exits import say
from bt_bench.cli.gpus import chosen_gpus
from bt_bench.cli.lottery import show_lottery
from bt_bench.cli.options import JsonOption, device_option, print_json

if TYPE_CHECKING:
    from bt_bench.base.names import DeviceKind
    from bt_bench.results import Calibration


def calibrate(
    quick: Annotated[
        bool, typer.Option("--quick", help="Take only as many samples as a sweep does.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Also write the samples to a new JSON file."),
    ] = None,
    device: Annotated[
        DeviceChoice | None,
        device_option(
            "cuda, cuda:N (the GPU of index N, counted from 0), or cpu to calibrate the host "
            "alone.",
            default="cuda",
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            "--gpus",
            metavar="GPUS",
            help="Calibrate these GPUs one after the other, with as many samples as a sweep takes, "
            "and show by how much they differ: all, or indices and UUIDs, such as 0,2.",
            show_default="the one of --device",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Show how far each measurement is from the truth on this machine.

    Times kernels that run for a set time, empty kernels, an injected delay, and the harness
    itself. Needs a GPU; `--device cpu` takes the host's part without one. Exit code 5 means that
    a promise of the harness is not kept here.

    Examples:
    - `bt-bench calibrate`
    - `bt-bench calibrate --quick`
    - `bt-bench calibrate --out calibration.json`
    - `bt-bench calibrate --gpus all`
    """
    from bt_bench.analysis import device_name, judge_promises
    from bt_bench.report import calibration_document, print_document
    from bt_bench.runs import check_conditions
    from bt_bench.worker import choose_device, leased, read_environment

    if out is not None:
        _check_new_file(out)
    if gpus is not None:
        return show_lottery(chosen_gpus(gpus, device), out, as_json)
    choice = device or "cuda"
    say("calibrating, which loads torch first and takes some seconds")
    kind = choose_device(choice)
    environment = read_environment(kind, choice=choice)
    with leased([environment], say):
        check_conditions(environment)
        calibration = _calibrate(kind, quick=quick)
    verdicts = judge_promises(calibration)
    document = {
        "schema_version": 2,
        "environment": environment.model_dump(mode="json"),
        "calibration": calibration.model_dump(mode="json"),
        "verdicts": [asdict(verdict) for verdict in verdicts],
    }
    if out is not None:
        import json

        from bt_bench.base import write_text

        write_text(out, json.dumps(document) + "\n")
    if as_json:
        print_json(document)
    else:
        name = device_name(environment) or "an unknown device"
        lead = f"{name}, torch {environment.torch}, Triton {environment.triton}."
        print_document(calibration_document(calibration, [lead]))
    missed = [verdict for verdict in verdicts if not verdict.kept]
    for verdict in missed:
        print(f"failed self-check: {verdict.finding}", file=sys.stderr)
    return ExitCode.CHECK_FAILED if missed else ExitCode.OK


def _check_new_file(path: Path) -> None:
    """Refuse a path that cannot be written, before anything is measured."""
    if path.exists():
        raise UsageError(f"--out {path} exists already; expected the path of a new file")
    if not path.parent.is_dir():
        raise UsageError(
            f"--out {path}: folder {path.parent} does not exist; create it or choose another path"
        )


def _calibrate(kind: DeviceKind, *, quick: bool) -> Calibration:
    from bt_bench.worker.measuring.calibration.calibrate import calibrate, calibrate_host
    from bt_bench.worker.measuring.ports import CudaPort, SystemClock

    if kind == "cpu":
        return calibrate_host(SystemClock())
    return calibrate(SystemClock(), CudaPort(), thorough=not quick)
