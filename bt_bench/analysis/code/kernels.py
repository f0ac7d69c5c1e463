"""The kernels of a static census, each once, under distinct names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bt_bench.analysis.code.ptx import split_outside_brackets
from bt_bench.results import Kernel, KernelCode, StaticCensus

_SPACES = ("global", "any")
"""Spaces that count as global memory: an address of unknown space may point there."""


@dataclass(frozen=True)
class KernelRow:
    """A kernel as compiled for one target.

    Args:
        label: its name, with a number if several binaries have it.
        kernel: the binary.
        variants: the variants that launch it.
        places: where they launch it, as `operation/case`.
    """

    label: str
    kernel: Kernel
    variants: tuple[str, ...]
    places: tuple[str, ...]


def kernel_rows(census: StaticCensus, target: str) -> list[KernelRow]:
    """Return the kernels that are launched on a target, by name and signature."""
    kernels: dict[str, Kernel] = {}
    variants: dict[str, dict[str, None]] = {}
    places: dict[str, dict[str, None]] = {}
    for variant in census.variants:
        known = {kernel.id: kernel for kernel in variant.kernels if kernel.target == target}
        for of in variant.operations:
            for digest in (each for each in of.kernels if each in known):
                kernels[digest] = known[digest]
                variants.setdefault(digest, {})[variant.name] = None
                places.setdefault(digest, {})[f"{of.operation}/{of.case}"] = None
    ordered = sorted(kernels.values(), key=lambda each: (each.name, each.signature, each.id))
    return [
        KernelRow(label, each, tuple(variants[each.id]), tuple(places[each.id]))
        for label, each in zip(numbered([each.name for each in ordered]), ordered, strict=True)
    ]


def numbered(names: Sequence[str]) -> list[str]:
    """Return names in their order, with a number where several are equal, such as `gather #2`."""
    counts, seen = Counter(names), Counter[str]()
    labels = []
    for name in names:
        seen[name] += 1
        labels.append(f"{name} #{seen[name]}" if counts[name] > 1 else name)
    return labels


def parameters_of(kernel: Kernel) -> dict[str, str]:
    """Return the parameters of a signature, verbatim, by name."""
    found = split_outside_brackets(kernel.signature)
    return {each.partition(":")[0].partition(" =")[0]: each for each in found}


def chain_as_text(code: KernelCode) -> str:
    """Return files and lines of the longest chain of loads."""
    return " → ".join(code.dependent_loads)


def waits_as_text(code: KernelCode) -> str:
    """Return files and lines of the loads behind each wait."""
    return ", ".join(" and ".join(places) for places in code.waits)


def accesses_as_text(counts: Mapping[str, int]) -> str:
    """Return the loads or stores of global memory by width in bits, such as `11×32 4×128`."""
    widths: dict[int, int] = {}
    for kind, count in counts.items():
        space, _, bits = kind.partition(":")
        if space in _SPACES:
            widths[int(bits)] = widths.get(int(bits), 0) + count
    return " ".join(f"{count}×{bits}" for bits, count in sorted(widths.items())) or "none"


def of_space(counts: Mapping[str, int], space: str) -> int:
    """Count the loads or stores of a space."""
    return sum(count for kind, count in counts.items() if kind.partition(":")[0] == space)
