"""`bt-bench profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bt_bench.cli import completion
from bt_bench.cli.options import (
    ConfigArgument,
    JsonOption,
    KernelsOption,
    OperationsOption,
    SelectOption,
    SetOption,
    SuiteOption,
    TracebackOption,
    VariantsOption,
    choose_variants,
    kernel_folders,
    load_spec,
    names_given,
    without_opponents,
)
from bt_bench.cli.profile.nsys import nsys_command
from bt_bench.cli.profile.static import StaticRequest, static_profile
from bt_bench.errors import ExitCode, UsageError, names_hint

TOOLS = ("static", "nsys")


def profile(
    config: ConfigArgument,
    tool: Annotated[
        str,
        typer.Option(
            "--tool",
            metavar="TOOL",
            help="static: what the compiler made of each kernel; needs no GPU. nsys: print the "
            "command that records a sweep with Nsight Systems.",
            autocompletion=completion.one_of(*TOOLS),
        ),
    ],
    variants: VariantsOption = None,
    operations: OperationsOption = None,
    select: SelectOption = None,
    overrides: SetOption = None,
    kernels: KernelsOption = None,
    suite: SuiteOption = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="A,B,…",
            help="Compile for these GPUs, the first of which is shown: sm_80 (A100), sm_86, sm_89, "
            "sm_90 (H100, H200), sm_100 (B200), sm_103, sm_120.",
            show_default="sm_90,sm_80,sm_100",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="RUN",
            help="Name what has changed since another profile: its folder, or its census.json.",
        ),
    ] = None,
    reports: Annotated[
        Path | None,
        typer.Option(
            "--reports",
            envvar="BT_BENCH_REPORTS",
            metavar="DIR",
            help="Make the folder of the profile in DIR.",
            show_default="reports",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write the profile to DIR. DIR must not exist."),
    ] = None,
    whole: Annotated[
        bool,
        typer.Option("--all", help="Print everything, as in profile.md, not only one screen."),
    ] = False,
    traceback: TracebackOption = False,
    as_json: JsonOption = False,
) -> ExitCode:
    """Show what a variant's kernels consist of, and what they wait for.

    With `--tool static` every kernel that the cases launch is compiled, as for the static gate, and
    disassembled: instructions by class, the longest chain of loads that wait for each other, and
    the lines where a warp waits. What is compiled is kept, so that a second run takes a second.

    Examples:
    - `bt-bench profile quick --tool static`
    - `bt-bench profile quick --tool static --variants fused,mine --kernels ./my_kernels`
    - `bt-bench profile quick --tool static --against reports/profile-quick-20260102T030405Z`
    - `bt-bench profile origin -k medium_batch_1grp --tool nsys`
    """
    if tool not in TOOLS:
        raise UsageError(f"--tool {tool!r} is not a tool; {names_hint(tool, TOOLS)}")
    spec = load_spec(
        config,
        suite=suite,
        variants=variants,
        operations=operations,
        select=select,
        overrides=overrides,
    )
    folders = kernel_folders(kernels, spec)
    if tool == "nsys":
        print(nsys_command(config, spec, folders))
        return ExitCode.OK
    spec = without_opponents(spec, by_name=variants is not None)
    request = StaticRequest(
        spec=spec,
        entries=choose_variants(spec, folders),
        targets=names_given("--target", target),
        against=against,
        reports=reports,
        out=out,
        whole=whole,
        traceback=traceback,
        as_json=as_json,
    )
    return static_profile(request)
