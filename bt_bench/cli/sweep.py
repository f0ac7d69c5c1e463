"""`bt-bench sweep`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.base.names import resolved
from bt_bench.cli import completion
from bt_bench.cli.cluster import ClusterOption, sweep_on_cluster
from bt_bench.cli.dry_run import show_plan, warn_if_long
from bt_bench.cli.exits import say, visible
from bt_bench.cli.gpus import GpusOption, chosen_gpus, workers_for
from bt_bench.cli.loading import kernel_folders, load_spec, new_folder
from bt_bench.cli.next_steps import next_lines, resume_command
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
    VllmSourceOption,
    choose_variants,
    command_line,
    is_typed,
    out_option,
    print_json,
    refuse_typed,
    reports_option,
    say_begin,
)
from bt_bench.cli.profile.of_run import RunProfiles, nsight_compute_for, say_tools
from bt_bench.cli.sharding import BalanceOption, ShardOption, end_empty, sharded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bt_bench.base.names import DeviceChoice
    from bt_bench.config import SweepSpec
    from bt_bench.protocol import SuiteRef
    from bt_bench.results import Division, RunFolder, VariantResult
    from bt_bench.runs import SweepRequest
    from bt_bench.variants import VariantEntry
    from bt_bench.worker import Hello, Supervisor

# Parameters that a resumed run has from its beginning.
_FIXED = ("variants", "operations", "select", "overrides", "shard", "balance", "out", "reports")


def sweep(
    ctx: typer.Context,
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG",
            help="A YAML file, the name of a stock config, a Python file of functions, or - for "
            "stdin. "
            "May be left out with --resume.",
            autocompletion=completion.configs,
        ),
    ] = None,
    variants: VariantsOption = None,
    operations: OperationsOption = None,
    select: SelectOption = None,
    overrides: SetOption = None,
    shard: ShardOption = None,
    balance: BalanceOption = None,
    cluster: ClusterOption = None,
    gpus: GpusOption = None,
    device: DeviceOption = None,
    kernels: KernelsOption = None,
    vllm_source: VllmSourceOption = None,
    suite: SuiteOption = None,
    reports: Annotated[Path | None, reports_option("Make the folder of the run in DIR.")] = None,
    out: Annotated[Path | None, out_option("results")] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="DIR", help="Continue the interrupted run in DIR."),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Afterwards profile the slowest and the most changed case of the whole step: keep "
            "a timeline with a trace, and Nsight Compute's counters. Needs a GPU and Nsight "
            "Compute.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check all that can be checked before a run: config, traces, memory, and that "
            "the variants import. List the cases, and estimate how long the sweep takes.",
        ),
    ] = False,
    dump_config: Annotated[
        bool, typer.Option("--dump-config", help="Print the expanded config, and run nothing.")
    ] = False,
    traceback: TracebackOption = False,
    as_json: JsonOption = False,
) -> ExitCode:
    """Check and measure variants on the workloads of a config, and compare them.

    Results go into a new folder, one JSON file per variant and all tables in `comparison.md`. A
    screen per operation goes to stdout, which `bt-bench show` prints again; progress goes to
    stderr. Variants run in a process of their own: one that crashes or hangs fails its cases, and
    the sweep goes on. Exit code 5 means that a variant failed a case.

    Examples:
    - `bt-bench sweep quick`
    - `bt-bench sweep origin --variants baseline,fused -k 'medium*'`
    - `bt-bench sweep production --set max_num_reqs=256 --set seed=1,2,3`
    - `bt-bench sweep my.yaml --kernels ./my_kernels --variants baseline,mine`
    - `bt-bench sweep origin --profile`
    - `bt-bench sweep production --shard 2/8 --balance reports/earlier`
    - `bt-bench sweep production --gpus all`
    - `bt-bench sweep production --cluster slurm`
    - `bt-bench sweep --resume reports/origin-20260102T030405Z`
    """
    if cluster is not None:
        return sweep_on_cluster(ctx, cluster)
    if gpus is not None and profile:
        raise UsageError(
            "--profile takes one GPU, and --gpus several; leave one of them out. --profile with "
            "--resume takes the profiles of a run that is complete"
        )
    from bt_bench.results import RunFolder

    if resume is not None:
        why = "--resume continues a run as it was started; leave {} out"
        refuse_typed(ctx, _FIXED, why)
        division = _resumed_division(resume)
        if division is not None and not division.own:
            return end_empty(RunFolder(resume), division, as_json)
        spec = _resumed_spec(resume, config, suite, kernels, division)
        if is_typed(ctx, "suite") and spec.suite != _ref(suite):
            raise UsageError(
                f"--resume continues a run as it was started, with the suite "
                f"{spec.suite.folder or spec.suite.name}; leave --suite {suite} out"
            )
    else:
        if config is None:
            raise UsageError(
                "CONFIG is missing; expected a file or a stock config, such as: bt-bench sweep "
                "quick"
            )
        spec = load_spec(
            config,
            suite=suite,
            variants=variants,
            operations=operations,
            select=select,
            overrides=overrides,
        )
        spec, division = sharded(spec, shard, balance)
    if dump_config:
        from bt_bench.config import dump_config as dump

        sys.stdout.write(dump(spec))
        return ExitCode.OK
    folders = kernel_folders(kernels, spec)
    by_name = variants is not None or resume is not None
    entries = choose_variants(spec, folders, vllm_source, by_name=by_name)
    say_begin(spec, entries)
    from bt_bench.runs import (
        check_conditions,
        check_memory,
        settle_sweep,
        write_plan,
    )
    from bt_bench.worker import leased

    spec = settle_sweep(spec, entries, folders)
    if division is not None and not (division.own or dry_run):
        folder = new_folder(spec.name, reports, out)
        write_plan(folder, spec, division)
        return end_empty(folder, division, as_json)
    devices = chosen_gpus(gpus, device)
    with workers_for(spec, entries, devices, traceback=traceback) as workers:
        worker = workers[0]
        ncu = nsight_compute_for(spec, worker.hello) if profile else None
        for each in workers:
            check_memory(spec, len(entries), each.hello.available_bytes)
        if dry_run:
            code = show_plan(spec, entries, worker.hello, len(workers), as_json, division)
            if ncu is not None:
                say_tools(ncu, as_json)
            return code
        environments = [each.hello.environment for each in workers]
        with leased(environments, say):
            for environment in environments:
                check_conditions(environment, profiles=bool(spec.plan.profile_rounds))
            request = _request(spec, entries, worker.hello, reports, out, resume, division)
            warn_if_long(spec, entries, worker.hello, len(workers))
            kind = resolved(devices[0], worker.hello.device)
            device = kind if gpus is None or kind == "cpu" else None
            again = _again(request, device, gpus, profile=profile)
            results = _run(request, workers, again)
    # The worker is gone: two users of CUPTI, or of the GPU's counters, would disturb each other.
    profiles = None if ncu is None else RunProfiles(request, results, kind, ncu, traceback, again)
    return _show(request, results, profiles, as_json)


def _ref(suite: str | None) -> SuiteRef | None:
    from bt_bench.protocol import find_suite

    return None if suite is None else find_suite(suite, Path.cwd())


def _resumed_division(resume: Path) -> Division | None:
    """Read the division beside an interrupted run's config; `None` if the run is no shard."""
    from bt_bench.results import RunFolder, read_division

    return read_division(RunFolder.open(resume).path)


def _resumed_spec(
    resume: Path,
    config: str | None,
    suite: str | None,
    kernels: Sequence[Path] | None,
    division: Division | None,
) -> SweepSpec:
    """Load the config of an interrupted run from the run's folder.

    The folder may be somebody else's. So code that its config names runs only if the user names it,
    too.
    """
    from bt_bench.config import case_digests, load_config, read_settings
    from bt_bench.results import CONFIG_NAME, DIVISION_NAME, RunFolder

    saved = RunFolder.open(resume).path / CONFIG_NAME
    if not saved.is_file():
        raise UsageError(f"{resume} has no {CONFIG_NAME}: nothing was measured; start a new run")
    given = None if config is None else load_config(config, suite=suite)
    named = _ref(suite), None if given is None else given.suite
    spec = load_config(saved, trusted=[ref for ref in named if ref is not None])
    if division is not None:
        own = [each.digest for each in division.cases if each.shard == division.index]
        if case_digests(spec.cases) != own:
            raise UsageError(
                f"{saved} does not have the cases that {DIVISION_NAME} beside it gives to shard "
                f"{division.shard.text}; put both back, or start a new run"
            )
    known = {*read_settings(Path.cwd()).kernels, *map(Path, given.kernels if given else ())}
    for folder in () if kernels else map(Path, spec.kernels):
        if folder.resolve() not in {each.resolve() for each in known}:
            raise UsageError(
                f"{saved} names the folder of variants {folder}, whose code would run; give "
                f"--kernels {folder} too if it is yours to run"
            )
    if given is not None:
        fixed = ("variants", "kernels", "operations", "cases")  # flags may have changed these
        same = {key: getattr(spec, key) for key in fixed}
        names, known_names = ({case.name for case in of.cases} for of in (spec, given))
        if given.model_copy(update=same) != spec or not names <= known_names:
            raise UsageError(
                f"{config} is not the config that {resume} was made with ({saved}); leave CONFIG "
                "out, or start a new run"
            )
    return spec


def _request(
    spec: SweepSpec,
    entries: Sequence[VariantEntry],
    hello: Hello,
    reports: Path | None,
    out: Path | None,
    resume: Path | None,
    division: Division | None,
) -> SweepRequest:
    """Make the folder, or open an interrupted run's folder if it can be continued."""
    from bt_bench.results import RunFolder
    from bt_bench.runs import SweepRequest, check_resumable

    if resume is not None:
        folder = RunFolder.open(resume)
        check_resumable(folder, spec, entries, hello.environment, division)
    else:
        folder = new_folder(spec.name, reports, out)
    return SweepRequest(
        spec, entries, hello.environment, folder, command_line(), hello.native, division
    )


def _again(
    request: SweepRequest, device: DeviceChoice | None, gpus: str | None, *, profile: bool
) -> str:
    """Return the command that continues the run, or takes its profiles later."""
    opponents = [entry.opponent for entry in request.entries if entry.opponent is not None]
    roots = [opponent.source.root for opponent in opponents]
    spec = request.spec
    return resume_command(
        request.folder.path,
        device,
        roots,
        gpus=gpus,
        suite=spec.suite.folder,
        kernels=spec.kernels,
        profile=profile,
    )


def _run(request: SweepRequest, workers: Sequence[Supervisor], again: str) -> list[VariantResult]:
    from bt_bench.cli.progress import progress_on_stderr
    from bt_bench.runs import Place, run_sweep

    others = [Place(worker, worker.hello.environment) for worker in workers[1:]]
    with request.folder.locked():
        try:
            with progress_on_stderr("sweep") as progress:
                return run_sweep(request, workers[0], progress, others)
        except BaseException:
            if request.folder.path.is_dir():
                folder = request.folder.path
                say(f"stopped; the results so far are in {folder}.")
                say(f"continue with: {again}")
            else:
                say(f"stopped; {request.folder.path} was removed, and what was measured with it.")
            raise


def _show(
    request: SweepRequest, results: list[VariantResult], profiles: RunProfiles | None, as_json: bool
) -> ExitCode:
    """Print the results, take the profiles, and print where these are.

    The results are printed whatever ends the profiling.
    """
    from bt_bench.report import print_run

    counts = Counter(case.status.value for result in results for case in result.cases)
    made = [] if profiles is None else profiles.made
    if not as_json:
        print_run(results)
        print("", *next_lines(request.folder.path, results), sep="\n")
    try:
        if profiles is not None:
            sys.stdout.flush()
            profiles.take()
    finally:
        if as_json:
            print_json(_summary(request.folder, results, counts) | {"profiles": made})
        else:
            for each in made:
                print(visible(f"Profile: {each['folder']}/ ({'; '.join(each['why'])})"))
    if counts["failed"]:
        return ExitCode.CHECK_FAILED
    return ExitCode.OK if profiles is None else profiles.code


def _summary(
    folder: RunFolder, results: list[VariantResult], counts: Counter[str]
) -> dict[str, object]:
    return {
        "schema_version": 1,
        "run_id": results[0].run_id,
        "folder": str(folder.path),
        "comparison": str(folder.comparison_path),
        "page": str(folder.page_path),
        "results": {
            result.variant.name: str(folder.result_path(result.variant.name)) for result in results
        },
        "complete": all(result.complete for result in results),
        "cases": sum(len(result.cases) for result in results),
        "failed": counts["failed"],
        "insufficient": counts["insufficient"],
        "unsupported": counts["unsupported"],
        "crashes": sum(len(result.crashes) for result in results),
    }
