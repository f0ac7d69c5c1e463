"""Check of the cases from a suite's process against the config, as this process reads it.

The suite's process expands axes and checks parameters, whose classes belong to the suite. It must
not decide which cases there are, their names or their margins.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bt_bench.base.errors import UsageError, shown
from bt_bench.config.naming import placeholders_as
from bt_bench.config.problems import Place, Problems
from bt_bench.config.sections import MAX_NAME, Entries, axis_values, margin_of
from bt_bench.config.spec import CaseSpec
from bt_bench.config.yaml import Located

ToldCase = tuple[int, CaseSpec]
"""A case, with its index in the config's `cases`."""


@dataclass(frozen=True)
class _Written:
    """A case as written in the config."""

    place: Place
    name: str
    margin_percent: float | None
    axes: tuple[str, ...]
    count: int


def as_written(
    root: Located, told: Sequence[ToldCase], set_apart: Collection[str], problems: Problems
) -> list[CaseSpec]:
    """Return the cases from a suite's process, with the margins that the config gives them.

    Args:
        root: the config.
        told: the cases, without any problem in the suite's process.
        set_apart: the axes of `--set`, which may replace axes or add some.
        problems: collects invalid margins.

    Raises:
        UsageError: for cases that the config cannot have.
    """
    written = [_written(item, problems) for item in _items(root)]
    problems.raise_if_any()
    found: list[CaseSpec] = []
    counts = [0] * len(written)
    for at, case in told:
        if not isinstance(at, int) or not 0 <= at < len(written):
            raise UsageError(f"{root.place}: the suite returned a case that the config lacks")
        counts[at] += 1
        if not _may_be_named(written[at], case.name, set_apart):
            raise UsageError(
                f"{written[at].place}: the suite names a case {shown(case.name)}; expected a name "
                f"as {shown(written[at].name)} gives it"
            )
        found.append(case.model_copy(update={"margin_percent": written[at].margin_percent}))
    for each, count in zip(written, counts, strict=True):
        if count != each.count and not (set_apart and count):
            raise UsageError(
                f"{each.place}: the suite makes {count} cases of this one; expected {each.count}"
            )
    if len({case.name for case in found}) != len(found):
        raise UsageError(f"{root.place}: the suite gives several cases the same name")
    return found


def _items(root: Located) -> list[Located]:
    cases = _mapping(root).get("cases")
    listed = cases.located.value if cases is not None else None
    return listed if isinstance(listed, list) else []


def _written(item: Located, problems: Problems) -> _Written:
    mapping = _mapping(item)
    product, zipped = (
        _mapping(mapping[kind].located) if kind in mapping else {} for kind in ("product", "zip")
    )
    varied = [*product.items(), *list(zipped.items())[:1]]
    values = [axis_values(key, entry.located, problems) for key, entry in varied]
    return _Written(
        item.place,
        str(mapping["name"].located.value) if "name" in mapping else "",
        margin_of(mapping, problems),
        (*product, *zipped),
        math.prod(len(each) for each in values if each is not None),
    )


def _mapping(located: Located) -> Entries:
    return located.value if isinstance(located.value, dict) else {}


def _may_be_named(written: _Written, name: str, set_apart: Collection[str]) -> bool:
    """Return whether a name fits a case: its template with any values, and axes appended."""
    pattern = placeholders_as(written.name, ".*")
    axes = "|".join(map(re.escape, {*written.axes, *set_apart}))
    if axes:
        pattern += f"(-({axes})=.*)?"
    return len(name) <= MAX_NAME and re.fullmatch(pattern, name, re.DOTALL) is not None
