"""`bt-bench list`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.cli import completion
from bt_bench.cli.exits import visible
from bt_bench.cli.loading import kernel_folders
from bt_bench.cli.options import (
    JsonOption,
    KernelsOption,
    SuiteOption,
    VllmSourceOption,
    print_json,
)

if TYPE_CHECKING:
    from bt_bench.config import SweepSpec

_CONDITIONS = {
    "(none)": "Triton's own call on an idle GPU, with whatever earlier steps left in the L2 cache",
    "/compiled": "launched through the handles of the compiled kernels",
    "/direct": "launched through the driver's cuLaunchKernel",
    "/graph": "a replay of a CUDA graph of the operation",
    "/busy": "the GPU works through a queue that outlasts the call, so the host is hidden",
    "/busy/cold": "the same, with the L2 cache flushed before",
    "A+B": "the sum of two times of one round, such as host_us+stage_us",
}
_COUNTED = {
    "launches": "device operations per step, by kind and name",
    "compiled_variants": "different binaries of the kernels that ran",
    "registers": "registers of a thread, kernel by kernel",
    "spills": "bytes that a thread spills, kernel by kernel",
}


class ListedSection(StrEnum):
    """The sections to list."""

    ALL = "all"
    METRICS = "metrics"


def _what(text: str) -> str:
    """Parse WHAT."""
    from bt_bench.protocol import is_file_of_functions

    if text not in list(ListedSection) and not is_file_of_functions(text):
        raise typer.BadParameter(
            f"{text!r} is not one of {', '.join(ListedSection)}, nor a Python file of functions"
        )
    return text


def list_(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            parser=_what,
            help="all: the variants, operations and configs. metrics: the metrics. A Python file "
            "of functions: its own.",
            autocompletion=completion.one_of(*ListedSection),
        ),
    ] = ListedSection.ALL,
    kernels: KernelsOption = None,
    vllm_source: VllmSourceOption = None,
    suite: SuiteOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """List variants, operations and stock configs of a suite, or the metrics of `--metric`.

    Examples:
    - `bt-bench list`
    - `bt-bench list metrics`
    - `bt-bench list --kernels ./my_kernels --json`
    - `bt-bench list --suite ./my_suite`
    - `bt-bench list add.py`
    """
    if what == ListedSection.METRICS:
        return _list_metrics(as_json=as_json)
    from bt_bench.config import stock_config_names
    from bt_bench.protocol import SuiteRef, find_suite, is_file_of_functions, load_suite
    from bt_bench.variants import find_variants

    if is_file_of_functions(what):
        suite = what
    ref = SuiteRef() if suite is None else find_suite(suite, Path.cwd())
    found = load_suite(ref)
    opponents = found.opponents(vllm_source or ())
    folders = kernel_folders(kernels)
    variants = find_variants(folders, opponents=opponents, suite=found).values()
    absent = opponents.absent
    names = [str(ref.folder)] if ref.is_file else stock_config_names(ref)
    configs, unreadable = _configs(names, suite)
    if as_json:
        document = {
            "schema_version": 1,
            "suite": {"name": found.name, "title": found.title},
            "variants": [
                {"name": v.name, "summary": v.summary, "shipped": v.shipped} for v in variants
            ],
            "not_available": [{"name": name, "reason": reason} for name, reason in absent.items()],
            "operations": [{"name": o, "title": o.traits.title} for o in found.operations],
            "configs": [
                {"name": name, "description": spec.description, "cases": len(spec.cases)}
                for name, spec in configs.items()
            ],
            "unreadable_configs": [
                {"name": name, "reason": reason} for name, reason in unreadable.items()
            ],
        }
        print_json(document)
        return ExitCode.OK
    rows = {variant.name: variant.summary for variant in variants}
    rows |= {name: f"not available: {reason}" for name, reason in absent.items()}
    _section("Suite", {found.name: found.title})
    _section("Variants", rows)
    _section("Operations", {str(o): o.traits.title for o in found.operations})
    rows = {name: f"{spec.description} ({len(spec.cases)} cases)" for name, spec in configs.items()}
    rows |= {name: f"cannot be read: {reason}" for name, reason in unreadable.items()}
    _section("Configs", rows)
    return ExitCode.OK


def _configs(
    names: Sequence[str], suite: str | None
) -> tuple[dict[str, SweepSpec], dict[str, str]]:
    """Return the configs that can be loaded, and the errors of those that cannot, by name.

    A file of functions is a config as well, and is named without its folder.
    """
    from bt_bench.config import load_config

    configs: dict[str, SweepSpec] = {}
    unreadable: dict[str, str] = {}
    for name in names:
        try:
            configs[Path(name).name] = load_config(name, suite=suite)
        except UsageError as error:
            unreadable[Path(name).name] = str(error)
    return configs, unreadable


def _list_metrics(*, as_json: bool) -> ExitCode:
    from bt_bench.results import Quantity

    measured = {quantity.value: quantity.traits.meaning for quantity in Quantity}
    if as_json:
        print_json(
            {
                "schema_version": 1,
                "measured_us": measured,
                "counted": _COUNTED,
                "conditions": _CONDITIONS,
            }
        )
        return ExitCode.OK
    decides = {quantity.value for quantity in Quantity if quantity.traits.decides is not None}
    marked = {name: f"{text}{' *' if name in decides else ''}" for name, text in measured.items()}
    _section("Measured, in µs (* decides; the others are exploratory)", marked)
    _section("Counted", _COUNTED)
    _section("Conditions, behind a measured metric: host_us/busy, gpu_us/busy/cold", _CONDITIONS)
    return ExitCode.OK


def _section(title: str, rows: dict[str, str]) -> None:
    width = max(map(len, rows), default=0)
    print(title)
    for name, text in rows.items():
        print(f"  {name:<{width}}  {visible(' '.join(text.split()))}")
    print()
