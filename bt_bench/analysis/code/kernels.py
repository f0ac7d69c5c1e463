"""The kernels of a static census, each once, under distinct names."""

from __future__ import annotations

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
        differs: the part of its signature that not all binaries of the name share, if there are
            several.
    """

    label: str
    kernel: Kernel
    variants: tuple[str, ...]
    places: tuple[str, ...]
    differs: str = ""


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
    labels, differs = _labels(ordered)
    return [
        KernelRow(
            labels[each.id],
            each,
            tuple(variants[each.id]),
            tuple(places[each.id]),
            differs[each.id],
        )
        for each in ordered
    ]


def _labels(kernels: Sequence[Kernel]) -> tuple[dict[str, str], dict[str, str]]:
    """Return labels, and the parts of signatures not shared by all of a name, by kernel id."""
    named: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        named.setdefault(kernel.name, []).append(kernel)
    labels: dict[str, str] = {}
    differs: dict[str, str] = {}
    for name, of_name in named.items():
        parts = [parameters_of(kernel) for kernel in of_name]
        common = set(parts[0].items()).intersection(*(each.items() for each in parts))
        for number, (kernel, of_kernel) in enumerate(zip(of_name, parts, strict=True), 1):
            labels[kernel.id] = f"{name} #{number}" if len(of_name) > 1 else name
            other = [text for item in of_kernel.items() if item not in common for text in item[1:]]
            differs[kernel.id] = ", ".join(other) if len(of_name) > 1 else ""
    return labels, differs


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
