"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A defect: in `file` of `bt_kernels`, `old` becomes `new`.

    Args:
        file: where it is.
        what: the defect, as a user would see it.
        old: text that occurs `times` times.
        new: what stands in its place.
        workload: the conformance workload that shows it; empty where `check` cannot see it, and
            a test of its own does.
        variant: the variant that shows it.
        times: how often the text occurs; all are replaced.
        native: whether helpers in C are used where they can be had. `False` for a defect of Python
            code that they take the place of.
        small: whether a step in one launch has many requests in a tile, and writers of few
            intervals, so that small workloads show what large ones do otherwise.
    """

    file: str
    what: str
    old: str
    new: str
    workload: str = "corners"
    variant: str = "fused"
    times: int = 1
    native: bool = True
    small: bool = False
