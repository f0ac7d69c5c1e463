"""`bt-bench gate`: its options, and the choice of its mode."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.base.names import MOST_ROUNDS, RECORDING_NAME, parse_fail_on, resolved
from bt_bench.cli import completion
from bt_bench.cli.gate.common import Options, both_trees, finish, make_folder
from bt_bench.cli.gate.rounds import end_empty, rounds_request, run_rounds, show_plan
from bt_bench.cli.gpus import GateGpusOption, chosen_gpus
from bt_bench.cli.loading import kernel_folders, load_spec
from bt_bench.cli.options import (
    DeviceOption,
    JsonOption,
    KernelsOption,
    OperationsOption,
    SelectOption,
    SetOption,
    SuiteOption,
    TracebackOption,
    VariantsOption,
    chosen_device,
    is_typed,
    out_option,
    refuse_typed,
    traceback_printer,
    without_opponents,
)
from bt_bench.cli.outputs import (
    AllowMissingOption,
    AllowPartialOption,
    FailOnOption,
    FormatOption,
    parse_outputs,
)
from bt_bench.cli.sharding import ShardOption, sharded

if TYPE_CHECKING:
    from bt_bench.base.names import DeviceChoice
    from bt_bench.config import SweepSpec


# Parameters without effect in each mode.
_OF_ROUNDS = (
    *("looks", "limit", "detect", "require_power", "workers", "time_equal", "gpus", "shard"),
)
_IDLE = {
    "--static": (*_OF_ROUNDS, "device", "threshold", "alpha", "allow_partial"),
    "--against": (*_OF_ROUNDS, "build"),
}


def gate(
    ctx: typer.Context,
    config: Annotated[
        str,
        typer.Option(
            "--config",
            metavar="CONFIG",
            help="A YAML file, the name of a stock config, or - for stdin.",
            autocompletion=completion.configs,
        ),
    ],
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            envvar="BT_BENCH_BASE",
            metavar="REF",
            help="Compare the working tree with this git revision.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="Compare with a stored result instead (advisory), or with --static a census.",
        ),
    ] = None,
    static: Annotated[
        bool,
        typer.Option(
            "--static",
            help="Compare launches, registers and spills of compiled kernels. Needs no GPU.",
        ),
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="FILE", help="Write the census to FILE. Only with --static."
        ),
    ] = None,
    variants: VariantsOption = None,
    operations: OperationsOption = None,
    select: SelectOption = None,
    overrides: SetOption = None,
    kernels: KernelsOption = None,
    suite: SuiteOption = None,
    build: Annotated[
        str | None,
        typer.Option(
            "--build",
            metavar="CMD",
            help="Run this shell command in the copy of each revision first.",
        ),
    ] = None,
    build_timeout: Annotated[
        float | None,
        typer.Option(
            "--build-timeout",
            min=1,
            max=86_400,
            metavar="SECONDS",
            help="Give --build this long in each revision, in seconds, from 1 to 86400.",
            show_default="1800",
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="PATTERN",
            help="Compare only these metrics, such as gpu_us or 'host_us*'. May be repeated.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            envvar="BT_BENCH_THRESHOLD",
            min=0.01,
            max=100,
            metavar="PERCENT",
            help="Ignore changes up to this size, in percent, from 0.01 to 100.",
            show_default="1.5; with --against 5",
        ),
    ] = None,
    detect: Annotated[
        float | None,
        typer.Option(
            "--detect",
            envvar="BT_BENCH_DETECT",
            min=0.01,
            max=100,
            metavar="PERCENT",
            help="Find slowdowns of this size, in percent, above --threshold and up to 100; of "
            "short times, from 0.15 µs on (0.1 µs below 3.3). The report states whether noise "
            "prevents it.",
            show_default="5",
        ),
    ] = None,
    require_power: Annotated[
        bool,
        typer.Option(
            "--require-power",
            help="Exit with 3 if noise could have hidden a slowdown of --detect and nothing worse "
            "was found.",
        ),
    ] = False,
    alpha: Annotated[
        float | None,
        typer.Option(
            "--alpha",
            envvar="BT_BENCH_ALPHA",
            min=1e-6,
            max=0.5,
            metavar="P",
            help="Probability of any false alarm, above 0 and below 0.5.",
            show_default="0.01",
        ),
    ] = None,
    fail_on: FailOnOption = None,
    allow_missing: AllowMissingOption = False,
    allow_partial: AllowPartialOption = False,
    looks: Annotated[
        str | None,
        typer.Option(
            "--rounds",
            envvar="BT_BENCH_ROUNDS",
            metavar="N,…",
            help="Test for a verdict after each of these round counts, rising, from 3 to 1000.",
            show_default="12,32",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--max-rounds",
            envvar="BT_BENCH_MAX_ROUNDS",
            min=3,
            max=MOST_ROUNDS,
            metavar="N",
            help=f"Go on up to this many rounds, 3 to {MOST_ROUNDS}, if noise may hide a slowdown "
            "of --detect. As many as the last of --rounds: never.",
            show_default="twice the last of --rounds",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            envvar="BT_BENCH_WORKERS",
            min=1,
            max=256,
            metavar="N",
            help="Set up this many worker processes at once.",
            show_default="by cores",
        ),
    ] = None,
    shard: ShardOption = None,
    time_equal: Annotated[
        bool, typer.Option("--time-equal", help="Measure even if both trees are equal.")
    ] = False,
    formats: FormatOption = None,
    out: Annotated[Path | None, out_option("results")] = None,
    gpus: GateGpusOption = None,
    device: DeviceOption = None,
    show_all: Annotated[
        bool,
        typer.Option("--all", help="List all verdicts by case, and how they were decided."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the comparisons, and run nothing.")
    ] = False,
    traceback: TracebackOption = False,
    as_json: JsonOption = False,
) -> ExitCode:
    """Compare the working tree's kernels with another revision's, and fail on a regression.

    Both revisions are measured in one process, in turns, beside the base once more as a control.
    Fresh processes are added until every verdict holds. Both are checked out into a temporary
    folder, the working tree with its changes: your repository is left alone.

    Examples:
    - `bt-bench gate --config origin --base main`
    - `bt-bench gate --config origin --base main --gpus all`
    - `bt-bench gate --config origin --base main --shard 1/4 --out gates/1`
    - `bt-bench gate --config my.yaml --base HEAD~1 --kernels ./my_kernels --format junit=gate.xml`
    - `bt-bench gate --config quick --static --base main`
    - `bt-bench gate --config origin --against reports/h100/origin/fused.json.xz`
    """
    from bt_bench.analysis import DEFAULT_FAIL_ON, GATE_MARGIN, Rules
    from bt_bench.base.names import FailOn
    from bt_bench.runs import prepare

    if against is not None and not is_typed(ctx, "base"):
        base = None  # a flag takes precedence over the environment

    def load(path: str, suite: str | None) -> SweepSpec:
        loaded = load_spec(
            path,
            suite=suite,
            variants=variants,
            operations=operations,
            select=select,
            overrides=overrides,
        )
        return without_opponents(loaded, by_name=variants is not None)

    spec = load(config, suite)
    percent = threshold if threshold is not None else spec.gate.margin_percent
    default = Rules()
    failing = parse_fail_on(
        fail_on, [FailOn(name) for name in spec.gate.fail_on or DEFAULT_FAIL_ON]
    )
    options = Options(
        spec=spec,
        base=base,
        against=against,
        folders=kernel_folders(kernels, spec),
        command=build,
        rules=Rules(
            margin=GATE_MARGIN if percent is None else percent / 100,
            advisory_margin=default.advisory_margin if percent is None else percent / 100,
            alpha=alpha or spec.gate.alpha or default.alpha,
        ),
        fail_on=tuple(f for f in failing if not (allow_missing and f is FailOn.MISSING)),
        outputs=parse_outputs(formats, as_json),
        config=config,
        suite=suite,
        load=load,
        folders_of=partial(kernel_folders, kernels),
        chosen=frozenset(
            name
            for name, given in (
                ("variants", variants),
                ("cases", select),
                ("operations", operations),
            )
            if given
        ),
        allow_partial=allow_partial,
        require_power=require_power and not static and against is None,
        show_all=show_all,
        build_seconds=build_timeout,
        on_traceback=traceback_printer(traceback),
    )
    if base is not None and against is not None:
        raise UsageError("--base and --against both name a base; give only one")
    if build_timeout is not None and build is None:
        raise UsageError("--build-timeout has no effect without --build; leave it out")
    if static:
        from bt_bench.cli.gate.static import static_gate

        if shard is not None:
            raise UsageError(
                f"--shard {shard} divides cases that are judged by chance; a static gate is exact, "
                "so jobs need not know of each other: give each some cases by -k, and let each "
                "decide"
            )
        _refuse_idle(ctx, "--static")
        # The config's metrics select what is timed.
        return static_gate(options, tuple(metrics or ()), save, out, dry_run)
    if allow_partial and against is None:
        raise UsageError("--allow-partial applies to a stored result; give --against FILE as well")
    if save is not None:
        raise UsageError("--save writes a static census; give --static as well")
    patterns = tuple(metrics or spec.gate.metrics or ())
    if against is not None:
        from bt_bench.cli.gate.against import gate_against

        _refuse_idle(ctx, "--against")
        return gate_against(options, patterns, _resolved(chosen_device(device)), out, dry_run)
    if base is None:
        raise UsageError("nothing to compare with; give --base REF, or --against FILE")
    own, division = sharded(spec, shard)
    if division is not None and not division.own and not dry_run:
        return end_empty(options, division, make_folder(spec.name, out))
    with both_trees(options) as trees:
        of_shard = replace(options, spec=own)  # but the base's config is compared with the whole
        # The base's settings, and not the head's, choose the device; --gpus chooses among GPUs.
        named = device or trees.device or "auto"
        wanted = named if gpus is None or device is not None or named == "cpu" else "auto"
        devices = [_resolved(each) for each in chosen_gpus(gpus, wanted)]
        request = rounds_request(
            *(of_shard, patterns, devices, trees, looks, detect, limit, workers, time_equal),
            division=division,
        )
        if dry_run:
            return show_plan(request)
        prepare(request)  # user errors show before a folder is made
        folder = make_folder(spec.name, out)
        judged = trees.at_home(run_rounds(replace(request, recording=folder / RECORDING_NAME)))
    return finish(judged, options, folder)


def _resolved(device: DeviceChoice) -> DeviceChoice:
    return resolved(device, "cuda")  # a gate never falls back to the CPU


def _refuse_idle(ctx: typer.Context, mode: str) -> None:
    refuse_typed(ctx, _IDLE[mode], f"{{}} has no effect on a gate with {mode}; leave it out")
