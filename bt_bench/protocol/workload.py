"""A workload of a suite: the steps that every variant is driven through."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bt_bench.base.names import Operation
from bt_bench.protocol.digests import digest_of


@dataclass(frozen=True)
class Traffic:
    """Bytes that a call of any variant must move in device memory, each counted once.

    Args:
        read: bytes that it has to read.
        written: bytes that it has to write.
    """

    read: int
    written: int


class Workload(ABC):
    """Plain host data, such as numpy arrays, which needs neither torch nor a device.

    Subclasses, usually frozen dataclasses, belong to the modules of their suite.

    `steps` is the window that is replayed, in order; the suite decides the contents of a step.
    A conformance workload that is `large` takes Triton's interpreter minutes: variants are checked
    on it only where kernels are compiled. `remarks` add facts to its parameters, such as how
    much of a file was left out; results keep them. They belong into no digest: a field of a
    dataclass is left out with `metadata={"digest": False}`.
    """

    steps: Sequence[Any]
    large: bool = False
    remarks: Sequence[str] = ()

    @property
    def features(self) -> frozenset[str]:
        """The features that a variant needs to run it; a variant without them is not run on it."""
        return frozenset()

    def digest(self) -> str:
        """Return the digest of all arrays and options: cases with equal digests are compared.

        Raises:
            TypeError: if a dataclass holds a type that `digest_of` does not know.
        """
        return digest_of(self)

    def sizes(self) -> Mapping[str, list[int]]:
        """Return the sizes of each step by name, for the record and for `bt-bench workload`."""
        return {}

    def varied(self, rng: np.random.Generator) -> Self:
        """Return the same workload with other contents, for a check; shapes and sizes stay."""
        return self

    def traffic(self, operation: Operation) -> list[Traffic] | None:
        """Return the bytes that one call must move in each step; `None` if they are not known."""
        return None
