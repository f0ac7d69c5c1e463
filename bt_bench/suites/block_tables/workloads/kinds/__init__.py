"""The kinds of workload, one file each; files here are found without further mention."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from bt_bench.suites.block_tables.workloads.kind import WorkloadParameters

DEFAULT_KIND = "uniform"


def find_kinds() -> tuple[type[WorkloadParameters], ...]:
    """Return the parameters of each kind, the default kind's first."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return tuple(
        each
        for name in sorted(names, key=lambda name: (name != DEFAULT_KIND, name))
        for each in vars(import_module(f"{__name__}.{name}")).values()
        if _is_kind(each, f"{__name__}.{name}")
    )


def _is_kind(found: object, module: str) -> bool:
    """Return whether an object is a kind defined in a module; shared bases begin with `_`."""
    return (
        isinstance(found, type)
        and issubclass(found, WorkloadParameters)
        and found.__module__ == module
        and not found.__name__.startswith("_")
    )
