"""The one case, operation and step that a profile of a step is of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bt_bench.errors import UsageError

if TYPE_CHECKING:
    from bt_bench.config import CaseSpec, SweepSpec
    from bt_bench.protocol import Operation

_SHOWN_NAMES = 5


def one_case(spec: SweepSpec, tool: str) -> CaseSpec:
    """The only case of a config.

    Raises:
        UsageError: if there are several.
    """
    _refuse_several("case", "-k", [case.name for case in spec.cases], tool)
    return spec.cases[0]


def one_operation(spec: SweepSpec, tool: str, *, by_name: bool) -> Operation:
    """The operation that is profiled.

    Args:
        spec: the config.
        tool: for messages.
        by_name: the operations come from the command line. Otherwise it is the config's most
            comprehensive one, the last in the order of lists.

    Raises:
        UsageError: if several were asked for, or it launches nothing.
    """
    if by_name:
        _refuse_several("operation", "--operations", list(map(str, spec.operations)), tool)
    operation = max(spec.operations, key=lambda each: each.traits.rank)
    if operation.traits.on_host:
        raise UsageError(
            f"operation {str(operation)!r} launches nothing, so that --tool {tool} has nothing to "
            "profile; choose another one by --operations"
        )
    return operation


def _refuse_several(what: str, option: str, names: Sequence[str], tool: str) -> None:
    if len(names) > 1:
        more = ", …" if len(names) > _SHOWN_NAMES else ""
        raise UsageError(
            f"--tool {tool} profiles one {what}, and {len(names)} are chosen: "
            f"{', '.join(names[:_SHOWN_NAMES])}{more}; choose one by {option}"
        )
