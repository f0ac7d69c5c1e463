"""The exact figures of one operation in two censuses, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bt_bench.results import COUNTED, Kernel, OperationCensus, VariantCensus

LAUNCHES, COMPILED_VARIANTS, REGISTERS, SPILLS = COUNTED


@dataclass(frozen=True)
class Figure:
    """A figure on both sides, for one target; less is better.

    Args:
        base: value of the base.
        head: value of the head, which is judged.
        what: what the number counts, such as `per step`.
    """

    base: float
    head: float
    what: str

    @property
    def change(self) -> float:
        """By how much it grew."""
        return self.head - self.base

    @property
    def detail(self) -> str:
        """The change in words, such as `5 per step, was 3`."""
        if not self.change:
            return self.what
        return f"{self.head:g} {self.what}, was {self.base:g}"


@dataclass(frozen=True)
class Taken:
    """One operation of a variant on a case for one target, with its kernels."""

    operation: OperationCensus
    kernels: tuple[Kernel, ...]


def taken(variant: VariantCensus, operation: OperationCensus) -> Taken:
    ids = set(operation.kernels)
    return Taken(operation, tuple(kernel for kernel in variant.kernels if kernel.id in ids))


def figures_of(base: Taken, head: Taken) -> dict[str, Figure]:
    """All figures by metric."""
    return {
        LAUNCHES: _launches(base.operation, head.operation),
        COMPILED_VARIANTS: Figure(len(base.kernels), len(head.kernels), "for this case"),
        REGISTERS: _of_kernels(base, head, lambda kernel: kernel.registers),
        SPILLS: _of_kernels(base, head, lambda kernel: kernel.spill_bytes),
    }


def _launches(base: OperationCensus, head: OperationCensus) -> Figure:
    counts = per_step(base), per_step(head)
    what = "per step"
    if counts[0] == counts[1] and base.steps != head.steps:
        what = "per step, but other kernels or in other steps"
    return Figure(*counts, what)


def per_step(operation: OperationCensus) -> float:
    """Launches, averaged over the steps."""
    launches = sum(run.steps * sum(run.launches.values()) for run in operation.steps)
    return launches / max(1, sum(run.steps for run in operation.steps))


def _of_kernels(base: Taken, head: Taken, value: Callable[[Kernel], int]) -> Figure:
    """The kernel that got worse the most; if none did, better the most; else the largest.

    Kernels that only one side has count through the maximum over all kernels.
    """
    before, after = _largest(base.kernels, value), _largest(head.kernels, value)
    figures = [Figure(before[name], after[name], f"in {name}") for name in before if name in after]
    largest = [max(side.values(), default=0) for side in (before, after)]
    figures.append(Figure(largest[0], largest[1], "in the kernel with the most"))
    worst = max(figures, key=lambda figure: figure.change)
    if worst.change > 0:
        return worst
    best = min(figures, key=lambda figure: figure.change)
    return best if best.change < 0 else figures[-1]


def _largest(kernels: tuple[Kernel, ...], value: Callable[[Kernel], int]) -> Mapping[str, int]:
    """Per kernel name, the largest value over its specialisations."""
    largest: dict[str, int] = {}
    for kernel in kernels:
        largest[kernel.name] = max(largest.get(kernel.name, 0), value(kernel))
    return largest
