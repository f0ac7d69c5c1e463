"""Comparison of counts, which need no statistics: launches and binaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bt_bench.results import COUNTED, Binaries, CompactCase, Launches, Metric


@dataclass(frozen=True)
class Count:
    """A counted metric on two sides; `None` where one side did not count.

    `detail` is a clause on the difference.
    """

    metric: Metric
    base: float | None
    other: float | None
    detail: str


def counts(base: CompactCase, other: CompactCase) -> Iterator[Count]:
    """Yield the counted metrics that either side has.

    Registers and spills come from one kernel, chosen by `_of_kernels`. Binaries are not compared
    where one side compiles none, since its kernels come from a library.
    """
    if base.launches is not None or other.launches is not None:
        yield launches_of(base.launches, other.launches)
    if base.compiled is None and other.compiled is None:
        return
    if _num_binaries(base.compiled) == 0 or _num_binaries(other.compiled) == 0:
        return
    yield Count(
        COUNTED["compiled_variants"],
        _num_binaries(base.compiled),
        _num_binaries(other.compiled),
        _changed_kernels("count", base.compiled, other.compiled),
    )
    if base.compiled is None or other.compiled is None:
        return
    for name in ("registers", "spills"):
        values = _of_kernels(name, _with_binaries(base.compiled), _with_binaries(other.compiled))
        if values != (None, None):
            detail = _changed_kernels(name, base.compiled, other.compiled)
            yield Count(COUNTED[name], *values, detail)


def launches_of(base: Launches | None, other: Launches | None) -> Count:
    """Compare the launches per step of two sides, at least one with counts."""
    return Count(
        COUNTED["launches"], _per_step(base), _per_step(other), _changed_launches(base, other)
    )


def _per_step(launches: Launches | None) -> float | None:
    """Return the mean of launches per step; it shows even one more launch in a single step."""
    if not launches:
        return None
    return sum(count for step in launches for _, _, count in step) / len(launches)


def _changed_launches(base: Launches | None, other: Launches | None) -> str:
    if base == other:
        return "the same launches"
    before, after = _totals(base), _totals(other)
    if before == after:
        return "the same launches, but in other steps"
    changed = sorted(set(before) | set(after))
    steps = len(base or other or ())
    return ", ".join(
        f"{before[name]} → {after[name]} {' '.join(name)}"
        for name in changed
        if before[name] != after[name]
    ) + (f", in all {steps} steps together" if steps > 1 else "")


def _totals(launches: Launches | None) -> Counter[tuple[str, str]]:
    totals: Counter[tuple[str, str]] = Counter()
    for step in launches or ():
        for kind, name, count in step:
            totals[kind, name] += count
    return totals


def _num_binaries(compiled: Mapping[str, Binaries] | None) -> float | None:
    return None if compiled is None else sum(kernel.count for kernel in compiled.values())


def _with_binaries(compiled: Mapping[str, Binaries]) -> dict[str, Binaries]:
    return {name: kernel for name, kernel in compiled.items() if kernel.count}


def _of_kernels(
    name: str, base: Mapping[str, Binaries], other: Mapping[str, Binaries]
) -> tuple[float | None, float | None]:
    """Return both values of the kernel that got worse the most.

    If none got worse, a value that one side does not know comes first, then the kernel that got
    better the most, then the largest. Kernels that only one side has count through the maximum over
    all kernels; `bt_bench.analysis.census_figures` does the same.
    """
    pairs = [
        (getattr(base[kernel], name), getattr(other[kernel], name))
        for kernel in base
        if kernel in other
    ]
    largest = _most(name, base), _most(name, other)
    if set(base) != set(other):
        pairs.append(_largest_known(name, base, other))
    known = [(before, after) for before, after in pairs if None not in (before, after)]
    worst = max(known, key=_growth, default=largest)
    if worst in known and _growth(worst) > 0:
        return worst
    # Where a number is missing, an improvement or no change would be false comfort.
    for before, after in pairs:
        if (before is None) != (after is None):
            return before, after
    best = min(known, key=_growth, default=largest)
    return best if best in known and _growth(best) < 0 else largest


def _growth(pair: tuple[float | None, float | None]) -> float:
    return (pair[1] or 0) - (pair[0] or 0)


def _largest_known(
    name: str, base: Mapping[str, Binaries], other: Mapping[str, Binaries]
) -> tuple[float | None, float | None]:
    """Return both maxima; `None` for a side if only this one lacks the number for a kernel."""
    unknown = [
        any(getattr(kernel, name) is None for kernel in side.values()) for side in (base, other)
    ]
    before, after = _most(name, base), _most(name, other)
    if unknown[0] == unknown[1]:
        return before, after
    return (None, after) if unknown[0] else (before, None)


def _most(name: str, compiled: Mapping[str, Binaries]) -> float | None:
    """Return the maximum over all kernels, 0 without kernels; `None` if no value is known."""
    values = [getattr(kernel, name) for kernel in compiled.values()]
    known: list[float] = [value for value in values if value is not None]
    return max(known, default=None if values else 0)


def _changed_kernels(
    name: str, base: Mapping[str, Binaries] | None, other: Mapping[str, Binaries] | None
) -> str:
    before, after = base or {}, other or {}
    changes = [
        f"{kernel} {_shown(before.get(kernel), name)} → {_shown(after.get(kernel), name)}"
        for kernel in sorted(set(before) | set(after))
        if _shown(before.get(kernel), name) != _shown(after.get(kernel), name)
    ]
    return ", ".join(changes) or "the same for every kernel"


def _shown(binaries: Binaries | None, name: str) -> str:
    value = None if binaries is None else getattr(binaries, name)
    return "none" if value is None else str(value)
