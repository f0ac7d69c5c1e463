"""The exact figures of one operation in two censuses, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bt_bench.results import COUNTED, Kernel, OperationCensus, VariantCensus

LAUNCHES, COMPILED_VARIANTS, REGISTERS, SPILLS = COUNTED


@dataclass(frozen=True)
class CensusFigure:
    """A figure on both sides, for one target; less is better.

    Args:
        base: value of the base.
        head: value of the head, which is judged.
        what: the unit that the number counts in, such as `per step`.
    """

    base: float
    head: float
    what: str

    @property
    def change(self) -> float:
        """Return the growth from base to head."""
        return self.head - self.base

    @property
    def detail(self) -> str:
        """Return the change in words, such as `5 per step, was 3`."""
        if not self.change:
            return self.what
        return f"{self.head:g} {self.what}, was {self.base:g}"


@dataclass(frozen=True)
class CensusOperation:
    """One operation of a variant on a case for one target, with its kernels."""

    operation: OperationCensus
    kernels: tuple[Kernel, ...]


def taken(variant: VariantCensus, operation: OperationCensus) -> CensusOperation:
    ids = set(operation.kernels)
    return CensusOperation(
        operation, tuple(kernel for kernel in variant.kernels if kernel.id in ids)
    )


def figures_of(base: CensusOperation, head: CensusOperation) -> dict[str, CensusFigure]:
    """Return all figures by metric."""
    return {
        LAUNCHES: _launches(base.operation, head.operation),
        COMPILED_VARIANTS: CensusFigure(len(base.kernels), len(head.kernels), "for this case"),
        REGISTERS: _of_kernels(base, head, lambda kernel: kernel.registers),
        SPILLS: _of_kernels(base, head, lambda kernel: kernel.spill_bytes),
    }


def _launches(base: OperationCensus, head: OperationCensus) -> CensusFigure:
    counts = per_step(base), per_step(head)
    what = "per step"
    if counts[0] == counts[1] and base.steps != head.steps:
        what = "per step, but other kernels or in other steps"
    return CensusFigure(*counts, what)


def per_step(operation: OperationCensus) -> float:
    """Return the launches per step, averaged over the steps."""
    launches = sum(run.steps * sum(run.launches.values()) for run in operation.steps)
    return launches / max(1, sum(run.steps for run in operation.steps))


def _of_kernels(
    base: CensusOperation, head: CensusOperation, value: Callable[[Kernel], int]
) -> CensusFigure:
    """Return the figure of the kernel that got worse the most.

    If none got worse, return the one that got better the most; if none changed, the largest.
    Kernels without a counterpart count through the maximum over all kernels.
    """
    figures = [
        CensusFigure(value(before), value(after), f"in {after.name}")
        for before, after in _pairs(base.kernels, head.kernels, value)
    ]
    largest = [max(map(value, side.kernels), default=0) for side in (base, head)]
    figures.append(CensusFigure(largest[0], largest[1], "in the kernel with the most"))
    worst = max(figures, key=lambda figure: figure.change)
    if worst.change > 0:
        return worst
    best = min(figures, key=lambda figure: figure.change)
    return best if best.change < 0 else figures[-1]


def _pairs(
    base: tuple[Kernel, ...], head: tuple[Kernel, ...], value: Callable[[Kernel], int]
) -> Iterator[tuple[Kernel, Kernel]]:
    """Pair the kernels of both sides, and let none hide behind another that has as much.

    Kernels of one name and signature are paired first, then kernels of one name, then all others,
    such as a kernel that was renamed. Each time, the kernels are paired in descending order of
    their values.
    """
    rest = [sorted(side, key=value, reverse=True) for side in (base, head)]
    kinds: tuple[Callable[[Kernel], object], ...] = (
        lambda kernel: (kernel.name, kernel.signature),
        lambda kernel: kernel.name,
        lambda _: None,
    )
    for kind in kinds:
        alike: dict[object, tuple[list[Kernel], list[Kernel]]] = {}
        for side, kernels in enumerate(rest):
            for kernel in kernels:
                alike.setdefault(kind(kernel), ([], []))[side].append(kernel)
        rest = [[], []]
        for before, after in alike.values():
            count = min(len(before), len(after))
            yield from zip(before[:count], after[:count], strict=True)
            rest[0] += before[count:]
            rest[1] += after[count:]
        rest = [sorted(side, key=value, reverse=True) for side in rest]
