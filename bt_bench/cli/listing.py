"""`bt-bench list`."""

from __future__ import annotations

from bt_bench.cli.options import (
    JsonOption,
    KernelsOption,
    VllmSourceOption,
    kernel_folders,
    print_json,
)
from bt_bench.errors import ExitCode


def list_(
    kernels: KernelsOption = None,
    vllm_source: VllmSourceOption = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """List variants, operations and stock configs.

    Examples:
    - `bt-bench list`
    - `bt-bench list --kernels ./my_kernels --json`
    """
    from bt_bench.config import load_config, stock_config_names
    from bt_bench.names import Operation
    from bt_bench.variants import VLLM, find_sources, find_variants

    sources = find_sources(vllm_source or ())
    variants = find_variants(kernel_folders(kernels), sources=sources).values()
    absent = {} if sources.found else {VLLM: sources.reason}
    configs = {name: load_config(name) for name in stock_config_names()}
    if as_json:
        document = {
            "schema_version": 1,
            "variants": [
                {"name": v.name, "summary": v.summary, "shipped": v.shipped} for v in variants
            ],
            "not_available": [{"name": name, "reason": reason} for name, reason in absent.items()],
            "operations": [{"name": o, "title": o.traits.title} for o in Operation],
            "configs": [
                {"name": name, "description": spec.description, "cases": len(spec.cases)}
                for name, spec in configs.items()
            ],
        }
        print_json(document)
        return ExitCode.OK
    rows = {variant.name: variant.summary for variant in variants}
    rows |= {name: f"not available: {reason}" for name, reason in absent.items()}
    _section("Variants", rows)
    _section("Operations", {o.value: o.traits.title for o in Operation})
    _section(
        "Configs",
        {name: f"{spec.description} ({len(spec.cases)} cases)" for name, spec in configs.items()},
    )
    return ExitCode.OK


def _section(title: str, rows: dict[str, str]) -> None:
    width = max(map(len, rows))
    print(title)
    for name, text in rows.items():
        print(f"  {name:<{width}}  {' '.join(text.split())}")
    print()
