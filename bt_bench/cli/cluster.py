"""`sweep --cluster FILE`: the shards of a sweep on the workers of a cluster, then their merger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.cli.exits import say
from bt_bench.cli.loading import kernel_folders, load_spec, reports_folder
from bt_bench.cli.next_steps import command, repeated
from bt_bench.cli.options import choose_variants, extent, refuse_typed

if TYPE_CHECKING:
    from bt_bench.config import ClusterSpec
    from bt_bench.runs.cluster import Ledger, Plan

ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="FILE",
        help="Divide the sweep into shards, have the workers of a cluster measure them, and merge "
        "them: a YAML file, or local, slurm or kubernetes. Needs bt-bench[cluster].",
    ),
]

# The file says which device; a shard is not profiled, and neither shown nor counted beforehand.
_REFUSED = ("device", "gpus", "shard", "profile", "dry_run", "dump_config")
_FIXED = ("variants", "operations", "select", "overrides", "balance", "out", "reports", "kernels",
          "vllm_source", "suite")  # fmt: skip


def sweep_on_cluster(ctx: typer.Context, cluster: str) -> ExitCode:
    """Measure a sweep on a cluster, or continue one.

    Args:
        ctx: of `sweep`, with all of its parameters.
        cluster: value of `--cluster`.
    """
    refuse_typed(ctx, _REFUSED, "{} has no meaning with --cluster; leave one of them out")
    given = ctx.params
    spec = _cluster(cluster)
    from bt_bench.runs.cluster import SUFFIX, Ledger

    if given["resume"] is not None:
        refuse_typed(ctx, _FIXED, "--resume continues a sweep as it was started; leave {} out")
        if given["config"] is not None:
            raise UsageError(
                f"--resume continues a sweep as it was started; leave {given['config']} out"
            )
        ledger = Ledger.open(Path(given["resume"]).absolute())
        ledger.plan.check_versions()
        out = ledger.folder.with_name(ledger.folder.name.removesuffix(SUFFIX))
    else:
        plan, name = _plan(given, spec)
        out = given["out"] or _new_name(reports_folder(given["reports"]), name)
        out = Path(out).absolute()
        if out.exists():
            raise UsageError(f"{out} exists, and a run is never overwritten; choose another folder")
        ledger = Ledger.begin(out.with_name(out.name + SUFFIX), plan)
    _measure(ledger, spec, cluster)
    return _merge(ledger, out, given["as_json"])


def _cluster(named: str) -> ClusterSpec:
    from bt_bench.config import LocalCluster, load_cluster
    from bt_bench.runs.cluster import ready_files
    from bt_bench.worker import gpu_uuids

    ready = ready_files()
    spec = load_cluster(ready.get(named, Path(named)), f"{named}.yaml" * (named in ready) or named)
    if isinstance(spec, LocalCluster) and not spec.devices:
        uuids = gpu_uuids()
        if not uuids:
            raise UsageError(
                f"--cluster {named}: this host has no GPU that NVML lists; expected one, or "
                "device: cpu and a name for each worker under devices"
            )
        return spec.model_copy(update={"devices": uuids})
    return spec


def _plan(given: dict[str, Any], cluster: ClusterSpec) -> tuple[Plan, str]:
    """Check the sweep as far as that is possible here; return its plan and its name."""
    from bt_bench.config import own_config
    from bt_bench.protocol import find_suite
    from bt_bench.runs.cluster import Plan, versions

    config = given["config"]
    if config is None or config == "-":
        raise UsageError(
            "CONFIG is missing; expected a file or a stock config, which every worker reads, such "
            "as: bt-bench sweep production --cluster slurm"
        )
    spec = load_spec(
        config,
        suite=given["suite"],
        variants=given["variants"],
        operations=given["operations"],
        select=given["select"],
        overrides=given["overrides"],
    )
    folders = kernel_folders(given["kernels"], spec)
    sources = given["vllm_source"] or ()
    entries = choose_variants(spec, folders, sources, by_name=given["variants"] is not None)
    say(f"{spec.name}: {extent(spec, entries)}, in {cluster.num_shards} shards")
    ref = None if given["suite"] is None else find_suite(given["suite"], Path.cwd())
    own = own_config(config, ref)
    suite = given["suite"] if ref is None or ref.folder is None else ref.folder
    ever = [
        *("--device", cluster.device),
        *(() if suite is None else ("--suite", suite)),
        *repeated("--kernels", [folder.absolute() for folder in folders]),
        *repeated("--vllm-source", [Path(source).absolute() for source in sources]),
    ]
    once = [
        *("--variants", ",".join(entry.name for entry in entries)),
        *(() if given["operations"] is None else ("--operations", given["operations"])),
        *repeated("-k", given["select"] or ()),
        *repeated("--set", given["overrides"] or ()),
        *(() if given["balance"] is None else ("--balance", given["balance"].absolute())),
    ]
    begun = ["sweep", config if own is None else own.absolute(), *once, *ever]
    plan = Plan(
        shards=cluster.num_shards,
        arguments=[str(word) for word in begun],
        resumed=[str(word) for word in ["sweep", *ever]],
        versions=versions(),
    )
    return plan, spec.name


def _new_name(reports: Path, name: str) -> Path:
    """Return the name of a run's folder, as `sweep` chooses it."""
    from bt_bench.results import RunFolder

    folder = RunFolder.create(reports, name).path
    folder.rmdir()  # it appears when all shards are merged
    return folder


def _measure(ledger: Ledger, spec: ClusterSpec, named: str) -> None:
    from bt_bench.cli.progress import progress_on_stderr
    from bt_bench.runs.cluster import run_shards
    from bt_bench.runs.cluster.parsl_engine import parsl_engine

    try:
        with (
            parsl_engine(spec, ledger.folder / "engine") as engine,
            progress_on_stderr("sweep") as progress,
        ):
            run_shards(ledger, engine, spec.attempts, progress)
    except BaseException:
        say(f"stopped; {ledger.done} of {ledger.plan.shards} shards are done, in {ledger.folder}.")
        again = command("sweep", "--resume", ledger.folder, "--cluster", named)
        say(f"continue with: {again}")
        raise


def _merge(ledger: Ledger, out: Path, as_json: bool) -> ExitCode:
    from bt_bench.cli.merge import merge

    return merge(ledger.folders(), out, as_json=as_json)
