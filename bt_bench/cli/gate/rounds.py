"""`bt-bench gate --base`: rounds of base and head until a verdict holds."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.base.names import RECORDING_NAME
from bt_bench.cli.exits import say
from bt_bench.cli.options import command_line
from bt_bench.cli.outputs import write_outputs
from bt_bench.cli.sharding import extent_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bt_bench.analysis import Judged
    from bt_bench.base.names import DeviceChoice
    from bt_bench.cli.gate.common import Options, Trees
    from bt_bench.results import Asked, Division
    from bt_bench.runs import GateRequest


def rounds_request(
    options: Options,
    patterns: tuple[str, ...],
    devices: Sequence[DeviceChoice],
    trees: Trees,
    looks: str | None,
    detect: float | None,
    limit: int | None,
    workers: int | None,
    time_equal: bool,
    division: Division | None = None,
) -> GateRequest:
    from bt_bench.runs import DEFAULT_LOOKS, GateRequest, OwnShard
    from bt_bench.worker.process.main import serve

    shard = None
    if division is not None:
        shard = OwnShard(division, asked_of(options, patterns, time_equal=time_equal))
    given = tuple(options.spec.gate.looks or DEFAULT_LOOKS)
    return GateRequest(
        spec=options.spec,
        base=trees.base,
        head=trees.head,
        device=devices[0],
        serve=serve,
        recording=Path(RECORDING_NAME),
        patterns=patterns,
        rules=options.rules,
        looks=given if looks is None else _parse_looks(looks),
        detect=_detect(options, detect),
        limit=limit,
        workers=workers,
        time_equal=time_equal,
        built=options.command is not None,
        lost=trees.lost if shard is None else shard.own_lost(trees.lost),
        shard=shard,
        command=tuple(command_line()),
        on_traceback=trees.tracebacks(options.on_traceback),
        others=tuple(devices[1:]),
    )


def asked_of(options: Options, patterns: Sequence[str], *, time_equal: bool) -> Asked:
    """Return the options that all shards of a gate have."""
    from bt_bench.results import Asked

    left_out = {"name", "description", "suite", "kernels", "cases"}
    return Asked(
        metrics=list(patterns),
        fail_on=list(options.fail_on),
        require_power=options.require_power,
        time_equal=time_equal,
        build=options.command,
        config=options.spec.model_dump(mode="json", exclude=left_out),
    )


def end_empty(options: Options, division: Division, folder: Path) -> ExitCode:
    """End a gate whose shard has no case: there is nothing to judge, and nothing is wrong."""
    from bt_bench.analysis import Judged
    from bt_bench.results import write_division
    from bt_bench.runs import shard_scope

    title = f"Gate {options.spec.name}: working tree against {options.base}"
    write_division(folder, division)
    scope = (shard_scope(division.shard),)
    write_outputs(Judged(title, options.base or "", (), (), (), scope=scope), options.outputs)
    say(
        f"shard {division.shard.text} has no case, so nothing is measured; bt-bench merge needs no "
        f"result of it, and takes {folder} all the same"
    )
    return ExitCode.OK


def _detect(options: Options, percent: float | None) -> float:
    """Return the slowdown to find, as a share.

    Raises:
        UsageError: if it is not above the margin, within which slowdowns count as none.
    """
    from bt_bench.analysis import DEFAULT_DETECT

    margin, named = options.rules.margin, "--detect"
    asked = percent
    if asked is None:
        named, asked = "gate.detect_percent", options.spec.gate.detect_percent
    if asked is None:
        return max(DEFAULT_DETECT, 2 * margin)
    if asked <= 100 * margin:
        raise UsageError(
            f"{named} is {asked:g}, but slowdowns up to the margin of {100 * margin:g} % count as "
            "none; expected more than that, or a smaller --threshold"
        )
    return asked / 100


def _parse_looks(text: str) -> tuple[int, ...]:
    from bt_bench.runs import MAX_LOOK

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) <= 4 and int(part) <= MAX_LOOK for part in parts):
        raise UsageError(
            f"--rounds {text}: expected rising whole numbers up to {MAX_LOOK}, such as 12,32"
        )
    return tuple(map(int, parts))


def show_plan(request: GateRequest) -> ExitCode:
    from bt_bench.analysis import Sought
    from bt_bench.runs import plan_of, prepare

    prepared = prepare(request)
    rounds = prepared.rounds
    devices = ", ".join((request.device, *request.others))
    against = f"{request.head.label} against {request.base.label} on {devices}"
    if rounds.subjects:
        first, last = request.looks[0], request.looks[-1]
        limit = plan_of(request, rounds.subjects).most_rounds
        more = f", or {limit} if the machine is noisy" if limit > last else ""
        print(f"{against}: {first} to {last} processes{more}")
        equal = "" if request.time_equal else "; seconds if both trees hold the same files"
        print(f"  time: {prepared.expected}{equal}")
        print(f"  to be found: a slowdown of {Sought(request.detect).text}")
    else:
        print(f"{against}: nothing is timed")
    if prepared.unseen:
        print(f"  {prepared.unseen}")
    print(f"  variants: {', '.join(rounds.variants)}")
    for name, lacking in prepared.missing.items():
        print(f"  missing: {name}, which {lacking} does not have")
    if request.shard is not None:
        print(f"  {extent_text(request.shard.division)}")
    print(f"  cases: {', '.join(case.name for case in rounds.spec.cases)}")
    for operation, metrics in rounds.metrics.items():
        print(f"  {operation}: {', '.join(metric.name for metric in metrics) or 'nothing'}")
    return ExitCode.OK


def run_rounds(request: GateRequest) -> Judged:
    from bt_bench.cli.progress import progress_on_stderr
    from bt_bench.results import DIVISION_NAME, read_recording, write_division
    from bt_bench.runs import check_files, run_live_gate

    check_files(request.spec)
    folder = request.recording.parent
    try:
        if request.shard is not None:
            write_division(folder, request.shard.division)
        with progress_on_stderr("gate") as progress:
            return run_live_gate(request, progress)
    except UsageError as error:
        if str(error).startswith("no GPU"):
            raise UsageError(
                f"{error}; without a GPU, --static compares the compiled kernels, and --device cpu "
                "counts launches and times staging"
            ) from None
        raise
    except KeyboardInterrupt:
        recording = request.recording
        if taken := len(read_recording(str(recording)).rounds) if recording.exists() else 0:
            which = "1 round so far is" if taken == 1 else f"{taken} rounds so far are"
            say(f"{which} in {recording}")
        raise
    finally:
        if not request.recording.exists():
            (folder / DIVISION_NAME).unlink(missing_ok=True)
        with suppress(OSError):  # fails if the folder is not empty: there is something to keep
            folder.rmdir()
