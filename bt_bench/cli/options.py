"""Options that several commands share, and the values they resolve to."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bt_bench.base.names import DEVICE_CHOICES, DeviceChoice, DeviceKind, is_device_choice
from bt_bench.cli import completion
from bt_bench.cli.exits import say, visible
from bt_bench.cli.next_steps import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bt_bench.config import SweepSpec
    from bt_bench.variants import VariantEntry
    from bt_bench.worker import Supervisor

ConfigArgument = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG",
        help="A YAML file, the name of a stock config, a Python file of functions, or - for stdin.",
        autocompletion=completion.configs,
    ),
]
VariantsOption = Annotated[
    str | None,
    typer.Option(
        "--variants",
        envvar="BT_BENCH_VARIANTS",
        metavar="A,B,…",
        help="Run these variants instead of the config's.",
        autocompletion=completion.variants,
    ),
]
OperationsOption = Annotated[
    str | None,
    typer.Option(
        "--operations",
        envvar="BT_BENCH_OPERATIONS",
        metavar="A,B,…",
        help="Run these operations of the suite instead of the config's; see bt-bench list.",
        autocompletion=completion.operations,
    ),
]
SelectOption = Annotated[
    list[str] | None,
    typer.Option(
        "-k",
        metavar="PATTERNS",
        help="Run only the cases whose name matches one of these patterns, such as `a,b*`.",
        autocompletion=completion.cases,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="AXIS=VALUE",
        help="Set a parameter in every case; several values, as in `a,b,c`, sweep it.",
    ),
]
KernelsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--kernels",
        envvar="BT_BENCH_KERNELS",
        metavar="DIR",
        help="Also look for variant files in DIR. May be repeated.",
    ),
]
VllmSourceOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--vllm-source",
        envvar="BT_BENCH_VLLM_SOURCE",
        metavar="DIR",
        help="Take vLLM from this unpacked wheel, for variants that wrap it. May be repeated.",
        show_default="the installed vLLM",
    ),
]


def _device(text: str) -> DeviceChoice:
    """Parse the value of `--device`, or of its environment variable."""
    if not is_device_choice(text):
        raise typer.BadParameter(f"{text!r} is not a device; expected {DEVICE_CHOICES}")
    return text


def device_option(
    help_: str, default: str | bool = False, envvar: str | None = "BT_BENCH_DEVICE"
) -> Any:
    """Return the option `--device`, as each command needs it.

    Args:
        help_: its help.
        default: the default that `--help` shows, if any.
        envvar: the environment variable that may set it.
    """
    return typer.Option(
        "--device",
        envvar=envvar,
        metavar="DEVICE",
        parser=_device,
        help=help_,
        show_default=default,
        autocompletion=completion.one_of("auto", "cpu", "cuda"),
    )


DeviceOption = Annotated[
    DeviceChoice | None,
    device_option(
        "cuda, cuda:N (the GPU of index N, counted from 0), the UUID of a GPU or MIG instance, "
        "cpu (interprets the kernels), or auto: cuda if there is a GPU, else cpu.",
        default="auto",
    ),
]
SuiteOption = Annotated[
    str | None,
    typer.Option(
        "--suite",
        envvar="BT_BENCH_SUITE",
        metavar="DIR",
        help="Measure the operations of this suite: a folder with suite.py, a Python file of "
        "functions, or the name of one that comes with bt-bench.",
        show_default="the config's, else block_tables",
        autocompletion=completion.suites,
    ),
]
TracebackOption = Annotated[
    bool,
    typer.Option(
        "--traceback",
        help="Also print the traceback of each error in a variant on stderr, those that are alike "
        "once.",
    ),
]
RedactOption = Annotated[
    bool,
    typer.Option(
        "--redact",
        help="Leave out names of hosts and users, and the folders of absolute paths.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def reports_option(does: str, panel: str | None = None) -> Any:
    """Return the option for the folder of reports.

    Args:
        does: a sentence of the help.
        panel: heading of the help that lists the option; `None`: the first one.
    """
    return typer.Option(
        "--reports",
        envvar="BT_BENCH_REPORTS",
        metavar="DIR",
        help=does,
        show_default="reports",
        rich_help_panel=panel,
    )


def out_option(writes: str, default: str | None = None) -> Any:
    """Return the option for a new folder, which gets what is named here."""
    help_ = f"Write {writes} to DIR. DIR must not exist."
    return typer.Option("--out", metavar="DIR", help=help_, show_default=default or True)


def recorded_option(
    flag: str, help_: str, offer: completion.Offer, panel: str | None = None
) -> Any:
    """Return an option that selects a part of stored results; by default all of it.

    Args:
        flag: `-k`, which takes patterns, or a flag that takes names.
        help_: its help.
        offer: completions.
        panel: heading of the help that lists the option; `None`: the first one.
    """
    return typer.Option(
        flag,
        metavar="PATTERNS" if flag == "-k" else "A,B,…",
        help=help_,
        autocompletion=offer,
        show_default="all",
        rich_help_panel=panel,
    )


def is_typed(ctx: typer.Context, name: str) -> bool:
    """Return whether a parameter was given on the command line, not only by the environment."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_typed(ctx: typer.Context, names: Iterable[str], why: str) -> None:
    """Refuse parameters on the command line; the environment may set them for other commands.

    Args:
        ctx: the command's context.
        names: names of the parameters.
        why: the message, with `{}` for the flag.

    Raises:
        UsageError: for the first one that was typed.
    """
    from bt_bench.base.errors import UsageError

    flags = {parameter.name: parameter.opts[0] for parameter in ctx.command.params}
    for name in names:
        if is_typed(ctx, name):
            raise UsageError(why.format(flags[name]))


def print_json(document: object) -> None:
    """Print the document of `--json`. The import of `json` is late, as `--help` needs none."""
    import json

    print(json.dumps(document, indent=2))


def command_line() -> list[str]:
    """Return the command as typed, for the record, with only the name of the program."""
    from bt_bench.variants import encodable

    return [PROGRAM, *map(encodable, sys.argv[1:])]


def chosen_device(choice: DeviceChoice | None) -> DeviceChoice:
    """Return the device by flag or environment, else by `[tool.bt-bench]`, else `auto`."""
    from bt_bench import config

    return config.chosen_device(choice)


def resolve_device(choice: DeviceChoice | None) -> DeviceKind:
    """Resolve `auto`; imports torch to find out.

    Raises:
        UsageError: when CUDA is requested and cannot be used.
    """
    from bt_bench.worker import choose_device

    return choose_device(chosen_device(choice))


def choose_variants(
    spec: SweepSpec,
    folders: Sequence[Path],
    vllm_sources: Sequence[Path] | None = None,
    *,
    by_name: bool = False,
) -> list[VariantEntry]:
    """Return the variant files of a config, without running any.

    Args:
        spec: the config, with names from it or from the command line.
        folders: folders of variant files.
        vllm_sources: unpacked wheels for variants that wrap vLLM.
        by_name: the names come from the command line. Otherwise opponents that are not available
            are left out, with a note on stderr.
    """
    from bt_bench import runs

    return runs.choose_variants(spec, folders, vllm_sources or (), by_name=by_name, say=say)


def without_opponents(spec: SweepSpec, *, by_name: bool) -> SweepSpec:
    """Return the config without variants that wrap third-party code, equal in all revisions.

    Raises:
        UsageError: if such a variant was named on the command line, or no other is left.
    """
    from bt_bench.base.errors import UsageError
    from bt_bench.protocol import load_suite

    suite = load_suite(spec.suite)
    out = [name for name in spec.variants if suite.is_opponent(name)]
    rest = [name for name in spec.variants if name not in out]
    if not out:
        return spec
    why = "revisions of the kernels are compared, and the code that it wraps is not one"
    if by_name or not rest:
        raise UsageError(f"variant {out[0]!r} cannot take part: {why}; leave it out")
    say(f"{', '.join(out)} is left out: {why}")
    return spec.model_copy(update={"variants": rest})


def say_begin(spec: SweepSpec, entries: Sequence[VariantEntry]) -> None:
    """Print the extent of the run on stderr, as soon as it is known.

    Loading torch takes seconds afterwards, and there is nothing else to show until then.
    """
    say(f"{spec.name}: {extent(spec, entries)}; loading torch and the variants")


def extent(spec: SweepSpec, entries: Sequence[VariantEntry]) -> str:
    """Return the extent of a run, such as `1 case × 2 operations × 3 variants`."""
    counts = {
        "case": len(spec.cases),
        "operation": len(spec.operations),
        "variant": len(entries),
    }
    return " × ".join(f"{count} {noun}{'s' * (count != 1)}" for noun, count in counts.items())


def worker_for(
    spec: SweepSpec,
    entries: Sequence[VariantEntry],
    device: DeviceChoice | None,
    *,
    traceback: bool = False,
    takes_turns: bool = False,
) -> Supervisor:
    """Return the worker process for a device and variants; a `with` block starts it."""
    from bt_bench.worker import Supervisor, WorkerSetup, arms_of
    from bt_bench.worker.process.main import serve

    setup = WorkerSetup(
        chosen_device(device), arms_of(entries), spec.plan, spec.suite, takes_turns=takes_turns
    )
    return Supervisor(setup, serve, traceback_printer(traceback))


def traceback_printer(wanted: bool) -> Callable[[str], None] | None:
    """Return a function that prints each distinct traceback once; `None` if none is wanted."""
    return cache(_print_traceback) if wanted else None


def _print_traceback(text: str) -> None:
    lines = [visible(line) for line in text.splitlines()]
    print("\n".join(lines), file=sys.stderr, flush=True)
