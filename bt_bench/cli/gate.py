"""`bt-bench gate`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.cli.options import (
    DeviceOption,
    JsonOption,
    KernelsOption,
    OperationsOption,
    SelectOption,
    SetOption,
    VariantsOption,
    choose_variants,
    chosen_device,
    kernel_folders,
    load_spec,
    without_opponents,
)
from bt_bench.cli.outputs import (
    AllowMissingOption,
    AllowPartialOption,
    FailOnOption,
    FormatOption,
    parse_fail_on,
    parse_outputs,
    write_outputs,
)
from bt_bench.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bt_bench.catalogue import VariantEntry
    from bt_bench.cli.outputs import Output
    from bt_bench.config.schema import SweepSpec
    from bt_bench.deciding import FailOn, Rules
    from bt_bench.device import DeviceKind
    from bt_bench.gating.live import GateRequest
    from bt_bench.gating.lost import Lost
    from bt_bench.gating.trees import Tree
    from bt_bench.verdicts import Judged

RECORDING_NAME = "recording.json"
VERDICTS_NAME = "verdicts.json"


@dataclass(frozen=True)
class Options:
    """What was asked for, once config and environment are taken into account.

    Args:
        spec: the config.
        base: the revision, if one is compared with.
        against: the file, if one is compared with.
        folders: of variants, as `--kernels` has them.
        command: for `--build`.
        rules: margin and alpha.
        fail_on: verdicts that fail the gate.
        outputs: where it goes.
        config: as `--config` has it.
        load: reads another config with the same flags.
        chosen: which of variants, cases and operations flags select from the config.
        allow_partial: take a stored result whose run did not come to its end.
    """

    spec: SweepSpec
    base: str | None
    against: str | None
    folders: list[Path]
    command: str | None
    rules: Rules
    fail_on: tuple[FailOn, ...]
    outputs: list[Output]
    config: str
    load: Callable[[str], SweepSpec]
    chosen: frozenset[str] = frozenset()
    allow_partial: bool = False


# What each way to compare has no use for: by parameter the flag.
_OF_ROUNDS = {"looks": "--rounds", "workers": "--workers", "time_equal": "--time-equal"}
_IDLE = {
    "--static": _OF_ROUNDS
    | {"out": "--out", "device": "--device", "threshold": "--threshold", "alpha": "--alpha"}
    | {"allow_partial": "--allow-partial"},
    "--against": _OF_ROUNDS | {"build": "--build"},
}


def gate(
    ctx: typer.Context,
    config: Annotated[
        str,
        typer.Option(
            "--config",
            metavar="CONFIG",
            help="A YAML file, the name of a stock config, or - for stdin.",
        ),
    ],
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            envvar="BT_BENCH_BASE",
            metavar="REF",
            help="The revision to compare the working tree with.",
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
        typer.Option("--static", help="Compile only: launches, registers, spills. Needs no GPU."),
    ] = False,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Write the census; with --static.")
    ] = None,
    variants: VariantsOption = None,
    operations: OperationsOption = None,
    select: SelectOption = None,
    overrides: SetOption = None,
    kernels: KernelsOption = None,
    build: Annotated[
        str | None,
        typer.Option("--build", metavar="CMD", help="Run in each revision's folder first."),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="PATTERN", help="Metrics to compare; may be repeated."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            envvar="BT_BENCH_THRESHOLD",
            min=0.01,
            max=100,
            metavar="PERCENT",
            help="A change up to this counts as none.",
            show_default="2",
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            "--alpha",
            envvar="BT_BENCH_ALPHA",
            min=1e-6,
            max=0.5,
            help="Probability of any false alarm.",
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
            help="After how many rounds verdicts are looked for; the last is the most.",
            show_default="12,20,32",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            envvar="BT_BENCH_WORKERS",
            min=1,
            max=256,
            help="Processes that are set up at once.",
            show_default="by cores",
        ),
    ] = None,
    time_equal: Annotated[
        bool, typer.Option("--time-equal", help="Measure also where both trees are equal.")
    ] = False,
    formats: FormatOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The gate's folder; new.")
    ] = None,
    device: DeviceOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be compared; run nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> ExitCode:
    """Compare the working tree's kernels with another revision's, and fail on a regression.

    Both revisions are measured in fresh processes, round by round, beside the base once more as a
    control; rounds are added until every verdict holds. The other revision is checked out into a
    temporary folder: your repository is left alone.

    Examples:
    - `bt-bench gate --config origin --base main`
    - `bt-bench gate --config my.yaml --base HEAD~1 --kernels ./my_kernels --format junit=gate.xml`
    - `bt-bench gate --config quick --static --base main`
    - `bt-bench gate --config origin --against reports/h200/origin/fused.json`
    """
    from bt_bench.deciding import DEFAULT_FAIL_ON, FailOn, Rules
    from bt_bench.gating.live import prepare

    if against is not None and not _is_typed(ctx, "base"):
        base = None  # a flag goes before the environment

    def load(path: str) -> SweepSpec:
        loaded = load_spec(
            path, variants=variants, operations=operations, select=select, overrides=overrides
        )
        return without_opponents(loaded, by_name=variants is not None)

    spec = load(config)
    percent = threshold if threshold is not None else spec.gate.margin_percent
    default = Rules()
    failing = parse_fail_on(
        fail_on, [FailOn(name) for name in spec.gate.fail_on or DEFAULT_FAIL_ON]
    )
    options = Options(
        spec=spec,
        base=base,
        against=against,
        folders=kernel_folders(kernels),
        command=build,
        rules=Rules(
            margin=default.margin if percent is None else percent / 100,
            advisory_margin=default.advisory_margin if percent is None else percent / 100,
            alpha=alpha or spec.gate.alpha or default.alpha,
        ),
        fail_on=tuple(f for f in failing if not (allow_missing and f is FailOn.MISSING)),
        outputs=parse_outputs(formats, as_json),
        config=config,
        load=load,
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
    )
    if base is not None and against is not None:
        raise UsageError("--base and --against are two things to compare with; give one")
    if static:
        from bt_bench.cli.gate_static import static_gate

        _refuse_idle(ctx, "--static")
        # The config's metrics say what is timed.
        return static_gate(options, tuple(metrics or ()), save, dry_run)
    if allow_partial and against is None:
        raise UsageError("--allow-partial is about a stored result; give --against FILE as well")
    if save is not None:
        raise UsageError("--save writes a static census; give --static as well")
    patterns = tuple(metrics or spec.gate.metrics or ())
    kind: DeviceKind = "cpu" if chosen_device(device) == "cpu" else "cuda"
    if against is not None:
        from bt_bench.cli.gate_against import gate_against

        _refuse_idle(ctx, "--against")
        return gate_against(options, patterns, kind, out, dry_run)
    if base is None:
        raise UsageError("nothing to compare with; give --base REF, or --against FILE")
    with both_trees(options) as (old, new):
        request = _request(options, patterns, kind, old, new, looks, workers, time_equal)
        if dry_run:
            return _dry_run(request)
        prepare(request)  # what the user got wrong shows before a folder is made
        folder = make_folder(spec.name, out)
        judged = _run(replace(request, recording=folder / RECORDING_NAME))
    return finish(judged, options, folder)


def _is_typed(ctx: typer.Context, parameter: str) -> bool:
    """Whether the command line has it, and not only the environment."""
    source = ctx.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def _refuse_idle(ctx: typer.Context, mode: str) -> None:
    """A flag that would do nothing; the environment may say it for other gates."""
    for parameter, flag in _IDLE[mode].items():
        if _is_typed(ctx, parameter):
            raise UsageError(f"{flag} has no effect on a gate with {mode}; leave it out")


@contextmanager
def both_trees(options: Options) -> Iterator[tuple[Tree, Tree]]:
    """Base and working tree, built where a command is given."""
    from bt_bench.gating.trees import base_tree, build, locate, working_tree

    assert options.base is not None
    location = locate(Path.cwd(), options.folders)
    new = working_tree(location)
    with base_tree(location, options.base) as old:
        for tree in (old, new) if options.command is not None else ():
            print(f"bt-bench: building {tree.label}", file=sys.stderr, flush=True)
            build(tree, options.command or "")
        yield old, new


def lost_of(options: Options, old: Tree, new: Tree) -> Lost:
    """What the config of the base has, and that of the working tree no longer."""
    from bt_bench.gating.lost import (
        Lost,
        config_of,
        lost_between,
        other_traces,
        without_variant,
    )
    from bt_bench.resources import stock_config_names

    lost, warnings = Lost(), [*without_variant(options.spec, new)]
    warnings += [*other_traces(options.spec, old, new), *_other_settings(old, new)]
    path = None
    if options.config != "-" and options.config not in stock_config_names():
        path = config_of(old, new, Path(options.config))
    unseen = "so cases that the config has lost are not noticed"
    if path is not None and not path.is_file():
        warnings.append(f"{old.label} has no {options.config}, {unseen}")
    elif path is not None:
        try:
            lost = lost_between(options.load(str(path)), options.spec)
        except UsageError as error:
            warnings.append(old.named(f"the config cannot be read, {unseen}: {error}"))
    return replace(lost, warnings=(*lost.warnings, *warnings))


def _other_settings(old: Tree, new: Tree) -> list[str]:
    """Warnings of settings of the project that only the head has so."""
    from bt_bench.config.settings import read_settings
    from bt_bench.gating.trees import place_below

    here = place_below(Path.cwd(), new.top)
    there = old.top if here is None else old.top / here
    try:
        before = read_settings(there if there.is_dir() else old.top)
    except UsageError as error:
        return [old.named(f"its settings cannot be read: {error}")]
    after = read_settings(Path.cwd())
    found = []
    if before.device != after.device:
        found.append(f"[tool.bt-bench] device is {after.device}, and in the base {before.device}")
    folders = [
        [place_below(folder, tree.top) for folder in settings.kernels or ()]
        for settings, tree in ((before, old), (after, new))
    ]
    if folders[0] != folders[1]:
        found.append("[tool.bt-bench] kernels are other folders than in the base")
    return found


def entries_here(options: Options) -> list[VariantEntry]:
    """The variants of the working tree: of the repository that has kernels, else as installed."""
    from bt_bench.gating.trees import locate, working_tree

    try:
        found = working_tree(locate(Path.cwd(), options.folders)).variants()
    except UsageError:
        return choose_variants(options.spec.variants, options.folders)
    return entries_of(options, found)


def entries_of(options: Options, found: Mapping[str, VariantEntry]) -> list[VariantEntry]:
    """Those of the config that there are."""
    return [found[name] for name in options.spec.variants if name in found]


def finish(judged: Judged, options: Options, folder: Path | None) -> ExitCode:
    """Writes all reports, and only then says how it ended."""
    from bt_bench.cli.outputs import Output
    from bt_bench.deciding import compared_nothing, exit_code

    kept = [] if folder is None else [Output("json", folder / VERDICTS_NAME)]
    write_outputs(judged, [*kept, *options.outputs])
    if folder is not None:
        print(f"bt-bench: rounds and verdicts are in {folder}/", file=sys.stderr)
    code = exit_code(judged, options.fail_on)
    if compared_nothing(judged.judgements) and code in (ExitCode.OK, ExitCode.INCONCLUSIVE):
        print("bt-bench: error: nothing could be compared; see the reasons above", file=sys.stderr)
        return ExitCode.NOT_COMPARABLE
    return code


def make_folder(name: str, out: Path | None) -> Path:
    """The folder of a gate: that of `--out`, which must be new, or one named by the time."""
    from bt_bench.config.settings import read_settings
    from bt_bench.store import RunFolder

    if out is not None and out.exists():
        raise UsageError(f"--out {out}: exists; expected a new folder for the gate")
    if out is not None:
        return RunFolder.create_exact(out).path
    parent = read_settings(Path.cwd()).reports or Path("reports")
    return RunFolder.create(parent, f"gate-{name}").path


def _request(
    options: Options,
    patterns: tuple[str, ...],
    kind: DeviceKind,
    old: Tree,
    new: Tree,
    looks: str | None,
    workers: int | None,
    time_equal: bool,
) -> GateRequest:
    from bt_bench.gating.live import GateRequest
    from bt_bench.gating.loop import DEFAULT_LOOKS
    from bt_bench.worker import serve

    given = tuple(options.spec.gate.looks or DEFAULT_LOOKS)
    return GateRequest(
        spec=options.spec,
        base=old,
        head=new,
        device=kind,
        serve=serve,
        recording=Path(RECORDING_NAME),
        patterns=patterns,
        rules=options.rules,
        looks=given if looks is None else _parse_looks(looks),
        workers=workers,
        time_equal=time_equal,
        built=options.command is not None,
        lost=lost_of(options, old, new),
        command=("bt-bench", *sys.argv[1:]),
    )


def _parse_looks(text: str) -> tuple[int, ...]:
    from bt_bench.gating.loop import MAX_LOOK

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) <= 4 and int(part) <= MAX_LOOK for part in parts):
        raise UsageError(
            f"--rounds {text}: expected rising whole numbers up to {MAX_LOOK}, such as 12,20,32"
        )
    return tuple(map(int, parts))


def _dry_run(request: GateRequest) -> ExitCode:
    from bt_bench.gating.live import prepare

    prepared = prepare(request)
    rounds = prepared.rounds
    processes = f"{3 * request.looks[0]} to {3 * request.looks[-1]} processes"
    print(f"{request.head.label} against {request.base.label} on {request.device}: {processes}")
    print(f"  variants: {', '.join(rounds.variants)}")
    for name, lacking in prepared.missing.items():
        print(f"  missing: {name}, which {lacking} does not have")
    print(f"  cases: {', '.join(case.name for case in rounds.spec.cases)}")
    for operation, metrics in rounds.metrics.items():
        print(f"  {operation}: {', '.join(metric.name for metric in metrics) or 'nothing'}")
    return ExitCode.OK


def _run(request: GateRequest) -> Judged:
    from bt_bench.cli.gate_progress import gate_progress_on_stderr
    from bt_bench.gating.live import run_live_gate
    from bt_bench.sweep import check_windows

    check_windows(request.spec)
    try:
        with gate_progress_on_stderr() as progress:
            return run_live_gate(request, progress)
    except UsageError as error:
        if str(error).startswith("no GPU"):
            raise UsageError(
                f"{error}; without one, --static compares what is compiled, and --device cpu times "
                "staging alone"
            ) from None
        raise
    except KeyboardInterrupt:
        if request.recording.exists():
            print(f"bt-bench: rounds so far are in {request.recording}", file=sys.stderr)
        raise
    finally:
        with suppress(OSError):  # not empty: there is something to keep
            request.recording.parent.rmdir()
