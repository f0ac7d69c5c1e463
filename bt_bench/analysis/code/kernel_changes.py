"""The changes from one static census to another, kernel by kernel and launch by launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bt_bench.analysis.census import refuse_differences
from bt_bench.analysis.code.kernels import (
    accesses_as_text,
    chain_as_text,
    of_space,
    parameters_of,
    waits_as_text,
)
from bt_bench.base.errors import NotComparableError
from bt_bench.results import Kernel, KernelCode, OperationCensus, StaticCensus, VariantCensus


@dataclass(frozen=True)
class KernelChange:
    """One figure that changed.

    Args:
        variants: the variants that it belongs to.
        where: a kernel, or `operation/case` where launches are counted.
        targets: the targets that it changed alike for.
        what: the figure.
        before: its value in the first census.
        after: its value in the second one.
        more: whether it grew; `None` where it is not a number.
        detail: additional information, such as the lines of the waits.
    """

    variants: tuple[str, ...]
    where: str
    targets: tuple[str, ...]
    what: str = ""
    before: str = ""
    after: str = ""
    more: bool | None = None
    detail: str = ""


def kernel_changes(
    before: StaticCensus, after: StaticCensus, labels: tuple[str, str] = ("before", "now")
) -> list[KernelChange]:
    """Return all changes, regressions first; a change that several variants share appears once.

    Args:
        before: the first census.
        after: the second one.
        labels: their names in messages.

    Raises:
        NotComparableError: when toolchains or workloads differ, or no variant is in both.
    """
    refuse_differences(before, after, *labels)
    found = [
        change
        for variant in after.variants
        if (old := before.variant(variant.name)) is not None
        for change in _merged(_of_variant(old, variant), "targets")
    ]
    if not any(before.variant(variant.name) for variant in after.variants):
        raise NotComparableError(f"{labels[0]} and {labels[1]} have no variant in common")
    return sorted(_merged(found, "variants"), key=lambda change: change.more is not True)


def _merged(
    changes: Iterable[KernelChange], field: Literal["targets", "variants"]
) -> list[KernelChange]:
    """Merge changes that differ only in one field, and collect all its values.

    The first change's details are kept: they have lines of sources, or of code for one target.
    """
    found: dict[KernelChange, tuple[KernelChange, dict[str, None]]] = {}
    for change in changes:
        key = _with(replace(change, detail=""), field, ())
        values = found.setdefault(key, (change, {}))[1]
        values |= dict.fromkeys(getattr(change, field))
    return [_with(first, field, tuple(values)) for first, values in found.values()]


def _with(change: KernelChange, field: str, values: tuple[str, ...]) -> KernelChange:
    return replace(change, **{field: values})  # type: ignore[arg-type]  # which of two is the point


def _of_variant(old: VariantCensus, new: VariantCensus) -> Iterator[KernelChange]:
    yield from _of_launches(old, new)
    targets = dict.fromkeys(kernel.target for kernel in (*old.kernels, *new.kernels))
    for target in targets:
        before = [kernel for kernel in old.kernels if kernel.target == target]
        after = [kernel for kernel in new.kernels if kernel.target == target]
        for was, now in _pairs(before, after):
            yield from _of_kernel(new.name, target, was, now)


def _of_launches(old: VariantCensus, new: VariantCensus) -> Iterator[KernelChange]:
    """Yield the changed launches of a step by kernel name, per operation and case."""
    known = {(of.operation, of.case, of.target): of for of in old.operations}
    for now in new.operations:
        was = known.get((now.operation, now.case, now.target))
        if was is None:
            continue
        place = KernelChange((new.name,), f"{now.operation}/{now.case}", (now.target,))
        if now.failure and not was.failure:
            yield replace(
                place, what="fails", before="no", after="yes", more=True, detail=now.failure
            )
        figures = [_per_step(of) for of in (was, now)] if not now.failure else [{}, {}]
        for name in dict.fromkeys((*figures[0], *figures[1])):
            one, other = (of.get(name, 0.0) for of in figures)
            yield from _of_number(replace(place, what=f"launches of {name} per step"), one, other)


def _per_step(of: OperationCensus) -> dict[str, float]:
    steps = max(1, sum(run.steps for run in of.steps))
    counts: dict[str, float] = {}
    for run in of.steps:
        for name, count in run.launches.items():
            counts[name] = counts.get(name, 0.0) + run.steps * count / steps
    return counts


def _of_number(place: KernelChange, before: float, after: float) -> Iterator[KernelChange]:
    """Yield the change of a number, if there is one."""
    if before != after:
        shown = [
            str(value) if isinstance(value, int) else f"{value:g}" for value in (before, after)
        ]
        yield replace(place, before=shown[0], after=shown[1], more=after > before)


def _pairs(
    before: Sequence[Kernel], after: Sequence[Kernel]
) -> Iterator[tuple[Kernel | None, Kernel | None]]:
    """Pair the kernels of both sides by name, and within a name by the most similar signature."""
    for name in dict.fromkeys(kernel.name for kernel in (*before, *after)):
        was = [kernel for kernel in before if kernel.name == name]
        now = [kernel for kernel in after if kernel.name == name]
        while was and now:
            one, other = max(
                ((one, other) for one in was for other in now), key=lambda pair: _alike(*pair)
            )
            was.remove(one)
            now.remove(other)
            yield one, other
        yield from ((one, None) for one in was)
        yield from ((None, other) for other in now)


def _alike(one: Kernel, other: Kernel) -> tuple[bool, int]:
    common = parameters_of(one).items() & parameters_of(other).items()
    return one.binary == other.binary, len(common)


def _of_kernel(
    variant: str, target: str, was: Kernel | None, now: Kernel | None
) -> Iterator[KernelChange]:
    either = now or was
    assert either is not None
    place = KernelChange((variant,), either.name, (target,))
    if was is None or now is None:
        before, after = ("no", "yes") if was is None else ("yes", "no")
        change = replace(place, what="is launched", before=before, after=after)
        yield replace(change, more=was is None, detail=either.signature)
        return
    numbers = [
        ("registers of a thread", was.registers, now.registers),
        ("bytes that a thread spills", was.spill_bytes, now.spill_bytes),
        ("bytes of local memory of a thread", was.stack_bytes, now.stack_bytes),
        ("bytes of shared memory", was.shared_bytes, now.shared_bytes),
    ]
    details = {}
    if was.code is not None and now.code is not None:
        numbers += _counted(was.code, now.code)
        details["dependent loads"] = chain_as_text(now.code)
        details["waits for loads"] = waits_as_text(now.code)
    for what, before_, after_ in numbers:
        detail = details.get(what, "")
        yield from _of_number(replace(place, what=what, detail=detail), before_, after_)
    if was.code is not None and now.code is not None:
        for what in ("loads", "stores"):
            texts = [accesses_as_text(getattr(each.code, what)) for each in (was, now)]
            if texts[0] != texts[1]:
                yield replace(place, what=f"global {what} by bits", before=texts[0], after=texts[1])


def _counted(old: KernelCode, new: KernelCode) -> Iterator[tuple[str, int, int]]:
    yield "dependent loads", len(old.dependent_loads), len(new.dependent_loads)
    yield "waits for loads", len(old.waits), len(new.waits)
    yield "instructions", old.instructions, new.instructions
    yield "branches", old.branches, new.branches
    yield "atomics", old.atomics, new.atomics
    yield "barriers", old.barriers, new.barriers
    for space in ("shared", "local"):
        for what in ("loads", "stores"):
            counts = [of_space(getattr(code, what), space) for code in (old, new)]
            yield f"{space} {what}", counts[0], counts[1]
