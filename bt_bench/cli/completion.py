"""Completions that a shell offers for a partial word.

The shell asks on each press of Tab, in the middle of a command line. So nothing here loads torch,
and errors are swallowed: there is then simply nothing to offer.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from bt_bench.protocol import Suite, SuiteRef
    from bt_bench.results import VariantResult

Offer = Callable[[typer.Context, str], list[str]]

YAML = (".yaml", ".yml")


def _quietly(offer: Callable[[typer.Context, str], Iterable[str]]) -> Offer:
    # Typer reads these annotations, so `functools.wraps(offer)` would not do.
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            with redirect_stderr(io.StringIO()):
                return [text for text in offer(ctx, incomplete) if text.startswith(incomplete)]
        except Exception:
            return []

    return complete


def _in_list(names: Callable[[typer.Context], Iterable[str]]) -> Offer:
    """Offer names for the last place of `a,b,…`, without the names already typed."""

    def offer(ctx: typer.Context, incomplete: str) -> Iterable[str]:
        head, comma, _ = incomplete.rpartition(",")
        before = head.split(",")
        return [f"{head}{comma}{name}" for name in names(ctx) if name not in before]

    return _quietly(offer)


def one_of(*names: str) -> Offer:
    """Offer these names."""
    return _quietly(lambda _ctx, _incomplete: names)


def any_of(*names: str) -> Offer:
    """Offer these names for each place of `a,b,…`."""
    return _in_list(lambda _ctx: names)


@_quietly
def configs(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Offer stock configs, YAML files, and the folders that lead to them."""
    from bt_bench.config import stock_config_names

    folder = incomplete.rpartition("/")[0] + "/" if "/" in incomplete else ""
    there = sorted(Path(folder).iterdir()) if Path(folder).is_dir() else []
    files = [f"{folder}{path.name}" for path in there if path.suffix in YAML]
    folders = [f"{folder}{path.name}/" for path in there if path.is_dir()]
    shown = [each for each in (*files, *folders) if _is_shown(each, incomplete)]
    return [*(() if folder else stock_config_names(_suite_ref(ctx))), *shown]


def _is_shown(path: str, incomplete: str) -> bool:
    """Return whether a file is not hidden, or its dot has been typed already."""
    return not Path(path).name.startswith(".") or Path(incomplete).name.startswith(".")


@_quietly
def suites(_ctx: typer.Context, _incomplete: str) -> Iterable[str]:
    """Offer the suites that come with bt-bench, and folders that hold one."""
    from bt_bench.protocol import shipped_suites

    return [*shipped_suites(), *sorted(str(path.parent) for path in Path().glob("*/suite.py"))]


@_in_list
def variants(ctx: typer.Context) -> Iterable[str]:
    """Offer the variants of the suite and of `--kernels`, without running any."""
    from bt_bench.cli.loading import kernel_folders
    from bt_bench.variants import REFERENCE, find_variants

    folders = kernel_folders([Path(folder) for folder in ctx.params.get("kernels") or ()])
    return [name for name in find_variants(folders, suite=_suite(ctx)) if name != REFERENCE]


@_in_list
def operations(ctx: typer.Context) -> Iterable[str]:
    """Offer the operations of the suite."""
    return list(map(str, _suite(ctx).operations))


@_in_list
def cases(ctx: typer.Context) -> Iterable[str]:
    """Offer the cases of the config that was typed before."""
    from bt_bench.cli.loading import load_spec

    # An option that lacks its value stops the parser before it has assigned the arguments.
    config = ctx.params.get("config") or next(iter(ctx.args), "quick")
    spec = load_spec(config, suite=_suite_given(ctx), overrides=ctx.params.get("overrides"))
    return [case.name for case in spec.cases]


def _recorded(ctx: typer.Context) -> list[VariantResult]:
    """Return the results in the folders and files that were typed before; others are skipped."""
    from bt_bench.base.errors import UsageError
    from bt_bench.results import RunFolder, read_result, read_run

    found: list[VariantResult] = []
    for word in ctx.args:
        path = Path(word)
        try:
            if path.is_dir():
                found += read_run(RunFolder.open(path))
            elif path.is_file():
                found.append(read_result(word))
        except UsageError:
            continue
    return found


@_in_list
def recorded_variants(ctx: typer.Context) -> Iterable[str]:
    """Offer the variants of the results that were typed before."""
    return dict.fromkeys(result.variant.name for result in _recorded(ctx))


@_in_list
def recorded_operations(ctx: typer.Context) -> Iterable[str]:
    """Offer the operations of these results."""
    cases = (case for result in _recorded(ctx) for case in result.cases)
    return dict.fromkeys(str(case.operation) for case in cases)


@_in_list
def recorded_cases(ctx: typer.Context) -> Iterable[str]:
    """Offer the cases of these results."""
    cases = (case for result in _recorded(ctx) for case in result.cases)
    return dict.fromkeys(case.case for case in cases)


@_quietly
def formats(_ctx: typer.Context, _incomplete: str) -> Iterable[str]:
    """Offer the formats for verdicts."""
    from bt_bench.report import FORMATS

    return FORMATS


@_quietly
def baselines(ctx: typer.Context, _incomplete: str) -> Iterable[str]:
    """Offer stored baselines."""
    from bt_bench.cli.loading import reports_folder
    from bt_bench.results import baseline_names

    reports = ctx.params.get("reports")
    return baseline_names(reports_folder(Path(reports) if reports else None))


def _suite_given(ctx: typer.Context) -> str | None:
    """Return the value of `--suite`, given after the command or before it."""
    before = ctx.parent.params.get("suite") if ctx.parent is not None else None
    return ctx.params.get("suite") or before


def _suite_ref(ctx: typer.Context) -> SuiteRef:
    from bt_bench.protocol import SuiteRef, find_suite

    given = _suite_given(ctx)
    return SuiteRef() if given is None else find_suite(given, Path.cwd())


def _suite(ctx: typer.Context) -> Suite:
    from bt_bench.protocol import load_suite

    return load_suite(_suite_ref(ctx))
