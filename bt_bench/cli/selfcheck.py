"""`bt-bench selfcheck`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.base.names import DeviceChoice, kind_of
from bt_bench.cli import completion
from bt_bench.cli.loading import kernel_folders, load_spec
from bt_bench.cli.options import (
    JsonOption,
    VariantsOption,
    choose_variants,
    command_line,
    device_option,
    print_json,
    refuse_typed,
    resolve_device,
    without_opponents,
)

if TYPE_CHECKING:
    from bt_bench.results import Recording


def selfcheck(
    ctx: typer.Context,
    recordings: Annotated[
        list[str] | None,
        typer.Option(
            "--recording",
            metavar="FILE",
            help="Draw from the rounds in this recording of `gate`, or - for stdin. May be "
            "repeated; each is counted apart.",
            show_default="one that comes with bt-bench",
        ),
    ] = None,
    gates: Annotated[
        int,
        typer.Option(
            "--gates",
            min=1,
            max=100_000,
            metavar="N",
            help="Simulate this many gates for each slowdown.",
        ),
    ] = 200,
    detect: Annotated[
        float,
        typer.Option(
            "--detect",
            min=0.01,
            max=100,
            metavar="PERCENT",
            help="As in gate: find slowdowns of this size, in percent, above 1.5 and up to 100.",
        ),
    ] = 5.0,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Random seed.")] = 0,
    device: Annotated[
        DeviceChoice | None,
        device_option(
            "Record rounds on this device first: cuda, cuda:N (the GPU of index N, counted from "
            "0), or cpu.",
            envvar=None,
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="CONFIG",
            help="Record the cases of this config, with --device.",
            autocompletion=completion.configs,
            show_default="origin on a GPU, quick without one",
        ),
    ] = None,
    variants: VariantsOption = None,
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds",
            min=12,
            max=10_000,
            metavar="N",
            help="Record this many rounds, with --device.",
        ),
    ] = 40,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="Write the recorded rounds to this file."),
    ] = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Show that the gate can fail, and that it does not cry wolf.

    Draws rounds of equal code from a recording and puts them through the whole gate: as they are,
    and with one figure slowed: by 1 to 10 %, and by the gate's own detection limit. Prints how
    often a build would be red and how often the slowdown is found. Needs no GPU. Exit code 5 means
    that a promise of the gate is not kept, on any of the recordings. With `--device cuda` it
    records the rounds first, which takes minutes.

    Examples:
    - `bt-bench selfcheck`
    - `bt-bench selfcheck --gates 1000`
    - `bt-bench selfcheck --recording recording.json`
    - `bt-bench selfcheck --device cuda --config origin --rounds 100 --save recording.json`
    """
    from bt_bench.analysis import GATE_MARGIN, Rules
    from bt_bench.cli.progress import progress_on_stderr
    from bt_bench.report import print_document
    from bt_bench.results import read_recording
    from bt_bench.runs import (
        RecordedPopulation,
        facts_of,
        selfcheck_document,
        selfcheck_json,
    )
    from bt_bench.runs.selfcheck.rates import plan_for
    from bt_bench.runs.selfcheck.rates import selfcheck as check

    rules = Rules(margin=GATE_MARGIN)
    if detect <= 100 * rules.margin:
        raise UsageError(
            f"--detect is {detect:g}, but slowdowns up to the margin of {100 * rules.margin:g} % "
            "count as none; expected more than that"
        )
    if device is None:
        why = "{} is for recording rounds; give --device as well, or leave it out"
        refuse_typed(ctx, ("config", "variants", "rounds", "save"), why)
        recorded = [read_recording(path) for path in recordings or [str(_shipped())]]
    elif recordings:
        raise UsageError(
            "--recording and --device exclude each other; expected rounds that are recorded, or "
            "a device to record them on"
        )
    else:
        recorded = [_record(config, variants, device, rounds, save)]
    populations = [RecordedPopulation(each) for each in recorded]
    plans = [plan_for(each, detect=detect / 100) for each in populations]
    with progress_on_stderr("selfcheck") as progress:
        found = [
            check(population, rules, gates, seed, plan, progress)
            for population, plan in zip(populations, plans, strict=True)
        ]
    if as_json:
        print_json(selfcheck_json(list(zip(recorded, found, strict=True)), plans[0], gates, seed))
    else:
        for one, plan, result in zip(recorded, plans, found, strict=True):
            print_document(selfcheck_document(result, facts_of(one, rules, plan, gates)))
    missed = [promise for result in found for promise in result.promises() if not promise.kept]
    for promise in missed:
        print(f"not as promised: {promise.promise}; {promise.found}", file=sys.stderr)
    return ExitCode.CHECK_FAILED if missed else ExitCode.OK


def _shipped() -> Path:
    """Return the recording that comes with the package."""
    from bt_bench.runs import recording_paths

    paths = recording_paths()
    if not paths:
        raise UsageError(
            "no recording comes with this installation; pass --recording FILE, such as the one "
            "that `bt-bench gate` writes where base and head are equal"
        )
    return paths[0]


def _record(
    config: str | None,
    variants: str | None,
    device: DeviceChoice,
    rounds: int,
    save: Path | None,
) -> Recording:
    """Record rounds of three identical arms; `auto` takes a GPU if there is one."""
    from bt_bench.base import is_stream, scratch_folder
    from bt_bench.cli.progress import progress_on_stderr
    from bt_bench.results import GateArm
    from bt_bench.runs import GateSide, RoundsRequest, choose_metrics, record
    from bt_bench.worker.process.main import serve

    if save is not None and is_stream(save):
        raise UsageError(
            f"--save {save} is not a regular file; expected one, since the recording is rewritten "
            "after every batch of rounds"
        )
    if device == "auto":
        device = resolve_device(device)
    kind = kind_of(device)
    # The cases of `quick` are tiny, and a GPU takes next to no time for them.
    config = config or ("origin" if kind == "cuda" else "quick")
    spec = without_opponents(load_spec(config, variants=variants), by_name=variants is not None)
    side = GateSide("installed", tuple(choose_variants(spec, kernel_folders(None))))
    request = RoundsRequest(
        spec=spec,
        sides=dict.fromkeys(GateArm, side),
        metrics=choose_metrics([], spec.operations, kind),
        device=device,
        serve=serve,
    )
    with scratch_folder("selfcheck") as folder, progress_on_stderr("recording") as progress:
        path = save or folder / "recording.json"
        return record(request, rounds, path, command_line(), progress)
