"""Differences between the results of a scenario in a variant and in the reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bt_bench.protocol import Contents, Floats
from bt_bench.results import Reason
from bt_bench.worker import Played, in_common


@dataclass(frozen=True)
class Difference:
    """The first difference between the results of a variant and of the reference.

    Args:
        place: index of the call, from 0.
        name: name of the differing value.
        reason: why the scenario ended there, if it did.
    """

    place: int
    name: str
    reason: Reason | None = None


def first_difference(wanted: Played, found: Played) -> Difference | None:
    """Return the first difference."""
    for place, (right, seen) in enumerate(zip(wanted.digests, found.digests, strict=False)):
        for name, value in right.items():
            if not _same(value, seen.get(name)):
                return Difference(place, name)
    if found.reason is not None:
        return Difference(len(found.digests), found.reason.code, found.reason)
    if len(found.digests) != len(wanted.digests):
        return Difference(min(len(found.digests), len(wanted.digests)), "number of calls")
    return None


def _same(wanted: str | Floats, found: str | Floats | None) -> bool:
    if not isinstance(wanted, Floats) or not isinstance(found, Floats):
        return wanted == found
    return wanted.values.shape == found.values.shape and not wanted.off(found.values).any()


def described(name: str, seen: Contents | None, expected: Contents | None) -> str:
    """Return how a value differs, with its first differing element.

    Args:
        name: of the value.
        seen: its contents in the variant; `None` if it has none.
        expected: its contents in the reference, likewise.
    """
    if isinstance(expected, str) or isinstance(seen, str) or seen is None or expected is None:
        return f"{name}: {seen}; expected {expected}"
    if isinstance(expected, Floats) != isinstance(seen, Floats):
        has, needs = ("floats", "integers") if isinstance(seen, Floats) else ("integers", "floats")
        return f"{name} has {has}; expected {needs}"
    found, wanted = (each.values if isinstance(each, Floats) else each for each in (seen, expected))
    if found.shape != wanted.shape:
        return f"{name} has shape {found.shape}; expected {wanted.shape}"
    within = ""
    if isinstance(expected, Floats):
        different = np.argwhere(expected.off(found))
        if expected.relative or expected.absolute:
            within = f" within {expected.relative:g} of its size and {expected.absolute:g}"
    else:
        different = np.argwhere(found != wanted)
    if not len(different):
        return f"{name} differed, and is right when it is played again"
    at = tuple(int(index) for index in different[0])
    places = tuple(different.T)
    alike = "" if isinstance(expected, Floats) else in_common(found[places], wanted[places])
    place = f"[{', '.join(map(str, at))}]" if at else ""
    return (
        f"{name}{place} is {found[at]}, expected {wanted[at]}{within}; {len(different)} of "
        f"{found.size} elements differ{alike}"
    )
