"""The kinds of workload: one file each, which is found here and needs no other mention."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, get_args

from pydantic import BeforeValidator, SerializeAsAny

from bt_bench.workloads.kind import WorkloadParameters

DEFAULT_KIND = "uniform"


def _found() -> dict[str, type[WorkloadParameters]]:
    """The parameters of each kind by its name, the default first."""
    kinds: dict[str, type[WorkloadParameters]] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        loaded = import_module(module.name)
        for each in vars(loaded).values():
            if getattr(each, "__module__", None) == module.name and _is_kind(each):
                (name,) = get_args(each.model_fields["workload"].annotation)
                kinds[name] = each
    return dict(sorted(kinds.items(), key=lambda item: (item[0] != DEFAULT_KIND, item[0])))


def _is_kind(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, WorkloadParameters)


KINDS = _found()


def _of_its_kind(value: object) -> object:
    if not isinstance(value, Mapping) or value.get("workload") not in KINDS:
        return value
    return KINDS[value["workload"]].model_validate(value)


OfAnyKind = Annotated[SerializeAsAny[WorkloadParameters], BeforeValidator(_of_its_kind)]
"""Parameters of a kind that `workload` names, when they are read back from JSON."""
