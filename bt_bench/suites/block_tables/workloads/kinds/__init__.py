"""The kinds of workload: one file each, which is found here and needs no other mention."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from bt_bench.suites.block_tables.workloads.kind import WorkloadParameters

DEFAULT_KIND = "uniform"


def find_kinds() -> tuple[type[WorkloadParameters], ...]:
    """The parameters of each kind, those of the default one first."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return tuple(
        each
        for name in sorted(names, key=lambda name: (name != DEFAULT_KIND, name))
        for each in vars(import_module(f"{__name__}.{name}")).values()
        if _is_kind(each, f"{__name__}.{name}")
    )


def _is_kind(found: object, module: str) -> bool:
    """A class of parameters of that module; what several kinds share begins with an underscore."""
    return (
        isinstance(found, type)
        and issubclass(found, WorkloadParameters)
        and found.__module__ == module
        and not found.__name__.startswith("_")
    )
