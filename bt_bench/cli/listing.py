"""`bt-bench list`."""

from __future__ import annotations

from pathlib import Path

from bt_bench.cli.exits import visible
from bt_bench.cli.options import (
    JsonOption,
    KernelsOption,
    SuiteOption,
    VllmSourceOption,
    kernel_folders,
    print_json,
)
from bt_bench.errors import ExitCode


def list_(
    kernels: KernelsOption = None,
    vllm_source: VllmSourceOption = None,
    suite: SuiteOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """List variants, operations and stock configs of a suite.

    Examples:
    - `bt-bench list`
    - `bt-bench list --kernels ./my_kernels --json`
    - `bt-bench list --suite ./my_suite`
    """
    from bt_bench.config import load_config, stock_config_names
    from bt_bench.protocol import SuiteRef, find_suite, load_suite
    from bt_bench.variants import find_variants

    ref = SuiteRef() if suite is None else find_suite(suite, Path.cwd())
    found = load_suite(ref)
    opponents = found.opponents(vllm_source or ())
    folders = kernel_folders(kernels)
    variants = find_variants(folders, opponents=opponents, suite=found).values()
    absent = opponents.absent
    configs = {name: load_config(name, suite=suite) for name in stock_config_names(ref)}
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
        }
        print_json(document)
        return ExitCode.OK
    rows = {variant.name: variant.summary for variant in variants}
    rows |= {name: f"not available: {reason}" for name, reason in absent.items()}
    _section("Suite", {found.name: found.title})
    _section("Variants", rows)
    _section("Operations", {str(o): o.traits.title for o in found.operations})
    _section(
        "Configs",
        {name: f"{spec.description} ({len(spec.cases)} cases)" for name, spec in configs.items()},
    )
    return ExitCode.OK


def _section(title: str, rows: dict[str, str]) -> None:
    width = max(map(len, rows), default=0)
    print(title)
    for name, text in rows.items():
        print(f"  {name:<{width}}  {visible(' '.join(text.split()))}")
    print()
