"""`bt-bench replay`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bt_bench.base.errors import ExitCode, UsageError, counted
from bt_bench.cli import completion
from bt_bench.cli.exits import say
from bt_bench.cli.loading import kernel_folders
from bt_bench.cli.options import (
    DeviceOption,
    JsonOption,
    KernelsOption,
    TracebackOption,
    VllmSourceOption,
    chosen_device,
    print_json,
    traceback_printer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bt_bench.protocol import RecordedCalls, Suite
    from bt_bench.runs import Replayed
    from bt_bench.variants import VariantEntry


def replay(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A recording of the vLLM plugin, or a file of its shadow mode."
        ),
    ],
    variants: Annotated[
        str | None,
        typer.Option(
            "--variants",
            envvar="BT_BENCH_VARIANTS",
            metavar="A,B,…",
            help="Replay only on these variants.",
            show_default="all but the reference",
            autocompletion=completion.variants,
        ),
    ] = None,
    at: Annotated[
        int, typer.Option("--at", metavar="N", min=0, help="Begin with this step, from 0.")
    ] = 0,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps", metavar="N", min=1, help="Replay at most N steps.", show_default="all"
        ),
    ] = None,
    device: DeviceOption = None,
    kernels: KernelsOption = None,
    vllm_source: VllmSourceOption = None,
    traceback: TracebackOption = False,
    as_json: JsonOption = False,
) -> ExitCode:
    """Replay an engine's recorded calls on variants, and compare each with the reference.

    Plays the calls of every variant of the suite block_tables, or of those that `--variants` names,
    in the order of the recording: once as they are, and once with a single call for the apply, the
    gather and the slots of a step. Compares whole buffers after each call. Times nothing. Exit code
    5 means that a variant differs, raised, crashed or hung; the output then has step, buffer, place
    and both values. A variant that cannot take the recorded tables is skipped; that is no failure.

    Examples:
    - `bt-bench replay calls.4711-1.bin`
    - `bt-bench replay calls.4711-1.bin --at 5000 --steps 200 --variants one_launch`
    - `bt-bench replay calls.4711-1.bin --kernels ./my_kernels --variants mine --json`
    """
    from bt_bench.base import names_given, one_line
    from bt_bench.cli.progress import told_on_stderr
    from bt_bench.protocol import DEFAULT_REF, load_suite
    from bt_bench.results import Plan
    from bt_bench.runs import replay
    from bt_bench.worker import Noticing, Supervisor, WorkerSetup, arms_of, explorer_of, leased
    from bt_bench.worker.process.main import serve

    suite = load_suite(DEFAULT_REF)
    entries = _entries(
        suite, kernel_folders(kernels), vllm_source or (), names_given("--variants", variants)
    )
    recorded = explorer_of(suite).recording(file)
    if at >= recorded.steps:
        raise UsageError(
            f"--at {at}: {file} has {counted(recorded.steps, 'step')}; expected a number below "
            "that, since steps count from 0"
        )
    total = min(recorded.steps - at, steps or recorded.steps)
    say(f"{counted(total, 'step')} × {counted(len(entries), 'variant')}; loading torch")
    if not as_json:
        print(one_line(f"{file}: {'; '.join(recorded.lines)}"), flush=True)

    def worker(arms: Sequence[VariantEntry], kind: Any) -> Supervisor:
        setup = WorkerSetup(kind, arms_of(arms), Plan(), DEFAULT_REF)
        return Supervisor(setup, serve, traceback_printer(traceback))

    with (
        told_on_stderr("loading torch") as tell,
        worker([], "cpu") as references,
        worker(entries, chosen_device(device)) as runner,
        leased([runner.hello.environment], say, shared=True),  # as for a check
    ):
        kind = runner.hello.device
        found = replay(
            recorded,
            recorded.excerpts(at, steps),
            Noticing(runner, lambda _, crash: say(f"warning: {crash}")),
            references,
            [entry.name for entry in entries],
            lambda arm, played: tell(
                f"replayed {played:,} of {counted(total, 'step')}, {arm} is next"
            ),
        )
    counts = Counter("failed" if one.failed else "skipped" if one.reason else "ok" for one in found)
    if as_json:
        print_json(_document(file, kind, recorded, at, total, found))
    else:
        for one in found:
            print(_text(one))
        skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
        print(f"{counts['ok']} equal, {counts['failed']} failed{skipped}, on {kind}")
    return ExitCode.CHECK_FAILED if counts["failed"] else ExitCode.OK


def _entries(
    suite: Suite,
    folders: Sequence[Path],
    vllm_sources: Sequence[Path],
    names: Sequence[str] | None,
) -> list[VariantEntry]:
    """Return the named variants; without names, all but the reference."""
    from bt_bench.variants import REFERENCE, choose, find_variants

    opponents = suite.opponents(vllm_sources)
    found = find_variants(folders, opponents=opponents, suite=suite)
    if names is None:
        return [entry for name, entry in found.items() if name != REFERENCE]
    chosen, _ = opponents.expand(names, by_name=True)
    return choose(chosen, found)


def _text(one: Replayed) -> str:
    """Return one variant's lines."""
    if one.reason is None:
        return f"ok      {one.variant} · {counted(one.steps, 'step')}, {counted(one.calls, 'call')}"
    if not one.failed:
        return f"skipped {one.variant} · {one.reason.code}: {one.reason.message}"
    if one.deviation is None:
        return f"FAILED  {one.variant}\n        {one.reason.code}: {one.reason.message}"
    return (
        f"FAILED  {one.variant} · step {one.deviation.step}, {one.deviation.way}\n"
        f"        {one.reason.code}: {one.reason.message}\n"
        f"        after {one.deviation.call}"
    )


def _document(
    file: Path,
    kind: str,
    recorded: RecordedCalls,
    first: int,
    steps: int,
    found: Sequence[Replayed],
) -> dict[str, Any]:
    """Return the document of `--json`."""
    return {
        "schema_version": 1,
        "file": str(file),
        "device": kind,
        "recording": {"facts": list(recorded.lines), "steps": recorded.steps},
        "first_step": first,
        "steps": steps,
        "variants": [
            {
                "name": one.variant,
                "status": "failed" if one.failed else "skipped" if one.reason else "equal",
                "steps": one.steps,
                "calls": one.calls,
                "reason": None if one.reason is None else one.reason.model_dump(mode="json"),
                "difference": None if one.deviation is None else asdict(one.deviation),
            }
            for one in found
        ],
    }
