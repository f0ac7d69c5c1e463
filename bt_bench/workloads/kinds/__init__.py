"""The kinds of workload: one file each, which is found here and needs no other mention."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Literal, get_args, get_origin

from pydantic import BeforeValidator, SerializeAsAny

from bt_bench.errors import UsageError, names_hint
from bt_bench.workloads.kind import WorkloadParameters

DEFAULT_KIND = "uniform"


def _found() -> dict[str, type[WorkloadParameters]]:
    """The parameters of each kind by its name, the default first.

    Raises:
        UsageError: for a class without a name that is its own, or without a builder.
    """
    kinds: dict[str, type[WorkloadParameters]] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        for each in vars(import_module(module.name)).values():
            if getattr(each, "__module__", None) != module.name or not _is_kind(each):
                continue
            name = _name_of(each)
            if name in kinds:
                raise UsageError(
                    f"{_place_of(each)}: workload {name!r} is also in {_place_of(kinds[name])}; "
                    "expected a name of its own"
                )
            if lacking := ", ".join(sorted(each.__abstractmethods__)):
                raise UsageError(f"{_place_of(each)} has no method {lacking}; expected one")
            kinds[name] = each
    return dict(sorted(kinds.items(), key=lambda item: (item[0] != DEFAULT_KIND, item[0])))


def _is_kind(found: object) -> bool:
    """A class of parameters; what several kinds share begins with an underscore."""
    if not isinstance(found, type) or not issubclass(found, WorkloadParameters):
        return False
    return not found.__name__.startswith("_")


def _name_of(kind: type[WorkloadParameters]) -> str:
    """The only value of `workload`."""
    annotation = kind.model_fields["workload"].annotation
    names = get_args(annotation) if get_origin(annotation) is Literal else ()
    if len(names) != 1 or not re.fullmatch(r"[A-Za-z_]\w*", str(names[0])):
        raise UsageError(
            f"{_place_of(kind)}: workload is {annotation}; expected its name as the only value, "
            'such as Literal["uniform"]'
        )
    return str(names[0])


def _place_of(kind: type[WorkloadParameters]) -> str:
    return f"{kind.__module__}.{kind.__name__}"


KINDS = _found()


def _of_its_kind(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    name = value.get("workload")
    if not isinstance(name, str) or name not in KINDS:
        hint = names_hint(name if isinstance(name, str) else "", KINDS)
        raise ValueError(f"unknown workload {name!r}; {hint}")
    return KINDS[name].model_validate(value)


OfAnyKind = Annotated[SerializeAsAny[WorkloadParameters], BeforeValidator(_of_its_kind)]
"""Parameters of a kind that `workload` names, when they are read back from JSON."""
