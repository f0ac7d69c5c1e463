"""The single case, operation and step of a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bt_bench.base.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from bt_bench.config import CaseSpec, SweepSpec
    from bt_bench.protocol import Operation
    from bt_bench.results import Counters, Timeline

_SHOWN_NAMES = 5


def one_case(spec: SweepSpec, tool: str, select: Sequence[str] = ()) -> CaseSpec:
    """Return the only case of a config, or the one whose whole name was given.

    Args:
        spec: the config, with the cases that were chosen.
        tool: for messages.
        select: values of `-k`.

    Raises:
        UsageError: if there are several.
    """
    given = {pattern.strip() for text in select for pattern in text.split(",")}
    # A pattern that equals one name may be part of another.
    exact = [case for case in spec.cases if case.name in given]
    if len(exact) == 1:
        return exact[0]
    _refuse_several("case", "-k", [case.name for case in spec.cases], tool)
    return spec.cases[0]


def one_operation(spec: SweepSpec, tool: str, *, by_name: bool) -> Operation:
    """Return the operation to profile.

    Args:
        spec: the config.
        tool: for messages.
        by_name: the operations come from the command line. Otherwise it is the config's most
            comprehensive one, the last in the order of lists.

    Raises:
        UsageError: if several were requested, or it launches nothing.
    """
    if by_name:
        _refuse_several("operation", "--operations", list(map(str, spec.operations)), tool)
    operation = max(spec.operations, key=lambda each: each.traits.rank)
    if operation.traits.on_host:
        raise UsageError(
            f"operation {str(operation)!r} launches nothing, so --tool {tool} has nothing to "
            "profile; choose another one by --operations"
        )
    return operation


def refuse_before_it_is_taken(
    before: Counters | Timeline,
    against: Path,
    spec: SweepSpec,
    step: int | None,
    names: Sequence[str],
    conditions: Mapping[str, str],
) -> None:
    """Refuse a profile that the requested one cannot be compared with.

    Args:
        before: the other profile.
        against: its path.
        spec: one case and one operation.
        step: index of the step in its window, from 0; `None`: the last one.
        names: names of the variants.
        conditions: other conditions that must be equal, by their names in messages.

    Raises:
        NotComparableError: if that is known already; another GPU is not.
        UsageError: for a step that the window does not have.
    """
    from bt_bench.analysis.profile import plan_of, refuse_another_plan
    from bt_bench.protocol import at_suite, built_record, ref_of_value
    from bt_bench.runs.profile import step_of

    case = spec.cases[0]
    workload = at_suite(ref_of_value(case.parameters), built_record, case.parameters)
    place = step_of(case.name, workload, step)
    planned = plan_of(str(spec.operations[0]), case.name, workload.digest, place)
    labels = str(against), "this profile"
    refuse_another_plan(before, {**planned, **conditions}, names, labels)


def _refuse_several(what: str, option: str, names: Sequence[str], tool: str) -> None:
    if len(names) > 1:
        more = ", …" if len(names) > _SHOWN_NAMES else ""
        raise UsageError(
            f"--tool {tool} profiles one {what}, and {len(names)} are chosen: "
            f"{', '.join(names[:_SHOWN_NAMES])}{more}; choose one by {option}"
        )
