"""`bt-bench profile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base import names_given
from bt_bench.base.errors import ExitCode, UsageError, names_hint
from bt_bench.cli import completion
from bt_bench.cli.loading import kernel_folders, load_spec
from bt_bench.cli.options import (
    ConfigArgument,
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
    out_option,
    refuse_typed,
    reports_option,
    without_opponents,
)
from bt_bench.cli.profile.ncu import ncu_profile
from bt_bench.cli.profile.nsys import nsys_command
from bt_bench.cli.profile.one_step import one_case
from bt_bench.cli.profile.places import refuse_place
from bt_bench.cli.profile.requests import ProfileRequest
from bt_bench.cli.profile.static import static_profile
from bt_bench.cli.profile.timeline import timeline_profile

if TYPE_CHECKING:
    from bt_bench.results import Cache

TOOLS = ("timeline", "trace", "ncu", "static", "nsys")
_OF_A_STEP = ("timeline", "trace", "ncu")
# Parameters that only some tools have, with these tools.
_MEANT = (
    (("step", "device", "vllm_source"), _OF_A_STEP),
    (("l2",), ("ncu",)),
    (("target",), ("static",)),
    (("against", "reports", "out", "whole", "traceback", "as_json"), (*_OF_A_STEP, "static")),
)


def profile(
    ctx: typer.Context,
    config: ConfigArgument,
    tool: Annotated[
        str,
        typer.Option(
            "--tool",
            metavar="TOOL",
            help="timeline: where each microsecond of a step goes, on host and GPU. trace: the "
            "same as a trace for Perfetto. ncu: the limits of each kernel of a step, by Nsight "
            "Compute. static: each kernel as compiled; needs no GPU. nsys: print the "
            "command that records a sweep with Nsight Systems.",
            autocompletion=completion.one_of(*TOOLS),
        ),
    ] = "timeline",
    variants: VariantsOption = None,
    operations: OperationsOption = None,
    select: SelectOption = None,
    overrides: SetOption = None,
    device: DeviceOption = None,
    kernels: KernelsOption = None,
    vllm_source: VllmSourceOption = None,
    suite: SuiteOption = None,
    step: Annotated[
        int | None,
        typer.Option(
            "--step",
            metavar="N",
            min=0,
            help="Profile step N of the case's window, counted from 0.",
            show_default="the last one",
        ),
    ] = None,
    l2: Annotated[
        str | None,
        typer.Option(
            "--l2",
            metavar="STATE",
            help="With --tool ncu, hot: leave the caches as they are. cold: flush them before each "
            "replay of a kernel.",
            show_default="hot",
            autocompletion=completion.one_of("hot", "cold"),
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="A,B,…",
            help="With --tool static, compile for these GPUs, and show the first: sm_80 "
            "(A100), sm_86, sm_89, sm_90 (H100, H200), sm_100 (B200), sm_103, sm_120.",
            show_default="sm_90,sm_80,sm_100",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="RUN",
            help="List the changes since another profile by the same tool: its folder, or its "
            "file.",
        ),
    ] = None,
    reports: Annotated[
        Path | None, reports_option("Make the folder of the profile in DIR.")
    ] = None,
    out: Annotated[Path | None, out_option("the profile")] = None,
    whole: Annotated[
        bool,
        typer.Option("--all", help="Print everything, as in profile.md, not only one screen."),
    ] = False,
    traceback: TracebackOption = False,
    as_json: JsonOption = False,
) -> ExitCode:
    """Show where a step's time goes, the limits of its kernels, and their code.

    By default: each host call, launch and device operation of one step, in order, and its critical
    part. This needs a GPU, and cupti-python of the driver's CUDA version (without it, torch's
    profiler gives fewer details). `--against` lists the changes since another profile.

    Examples:
    - `bt-bench profile origin -k medium_batch_1grp`
    - `bt-bench profile origin -k medium_batch_1grp --variants mine --kernels ./my_kernels --against
      reports/profile-origin-20260102T030405Z`
    - `bt-bench profile azure_conv -k busiest_rate1_1grp --step 3 --tool ncu --l2 cold`
    - `bt-bench profile quick --tool static`
    - `bt-bench profile origin -k medium_batch_1grp --tool nsys`
    """
    if tool not in TOOLS:
        raise UsageError(f"--tool {tool!r} is not a tool; {names_hint(tool, TOOLS)}")
    _refuse_others(ctx, tool)
    refuse_place(out)
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
    if tool == "static":
        spec = without_opponents(spec, by_name=variants is not None)
    else:  # before variants are looked for, which may print notes
        spec = spec.model_copy(update={"cases": [one_case(spec, tool, select or ())]})
    sources = None if tool == "static" else vllm_source
    request = ProfileRequest(
        tool=tool,
        spec=spec,
        entries=choose_variants(spec, folders, sources, by_name=variants is not None),
        operations_by_name=operations is not None,
        step=step,
        device=device,
        l2=_cache(l2),
        targets=names_given("--target", target),
        against=against,
        reports=reports,
        out=out,
        whole=whole,
        traceback=traceback,
        as_json=as_json,
    )
    if tool == "static":
        return static_profile(request)
    return ncu_profile(request) if tool == "ncu" else timeline_profile(request)


def _refuse_others(ctx: typer.Context, tool: str) -> None:
    """Refuse options that have no meaning for a tool; the environment is ignored."""
    for names, tools in _MEANT:
        if tool not in tools:
            others = ", ".join(tools)
            refuse_typed(ctx, names, f"{{}} means nothing to --tool {tool}, only to: {others}")


def _cache(text: str | None) -> Cache | None:
    from bt_bench.results import Cache

    if text is None:
        return None
    names = [each.value for each in Cache]
    if text not in names:
        raise UsageError(f"--l2 {text!r} is not a state; {names_hint(text, names)}")
    return Cache(text)
