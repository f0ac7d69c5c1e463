"""Pairs the cases of two results; figures play no part.

Cases correspond if operation and workload digest are equal; names and variants may differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from bt_bench.base.names import Operation
from bt_bench.results import CompactCase


def match_cases(
    base: Sequence[CompactCase], other: Sequence[CompactCase]
) -> tuple[list[tuple[CompactCase, CompactCase]], list[CompactCase], list[CompactCase]]:
    """Return pairs in the order of the base, then the cases left over on either side."""
    unclaimed: dict[tuple[Operation, str], list[CompactCase]] = defaultdict(list)
    for case in other:
        unclaimed[_identity(case)].append(case)
    partners: dict[int, CompactCase] = {}
    # Two cases of one file may have equal workloads; then equal names belong together.
    for by_name in (True, False):
        for index, case in enumerate(base):
            if index in partners:
                continue
            found = _take(unclaimed[_identity(case)], case.case if by_name else None)
            if found is not None:
                partners[index] = found
    matches = [(base[index], partners[index]) for index in sorted(partners)]
    only_base = [case for index, case in enumerate(base) if index not in partners]
    return matches, only_base, [case for cases in unclaimed.values() for case in cases]


def why_missing(case: CompactCase, label: str, keys: Collection[str], complete: bool) -> str:
    """Return why a side has no counterpart of a case.

    Args:
        case: the case, of the side that has it.
        label: label of the side that lacks it.
        keys: keys of that side's cases.
        complete: whether that side's run finished.
    """
    if case.key in keys:
        return f"{label} has another workload under this name"
    if not complete:
        return f"{label} is partial and has not reached it"
    return f"{label} has no such workload"


def _identity(case: CompactCase) -> tuple[Operation, str]:
    return case.operation, case.digest


def _take(candidates: list[CompactCase], name: str | None) -> CompactCase | None:
    """Remove and return the first candidate of a name; of any name if it is `None`."""
    for index, candidate in enumerate(candidates):
        if name is None or candidate.case == name:
            return candidates.pop(index)
    return None
