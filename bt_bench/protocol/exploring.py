"""How a suite makes up scenarios: sequences of calls that no workload has, found by number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

    from bt_bench.protocol.driver import Guard


@dataclass(frozen=True, eq=False)
class Floats:
    """Contents in floating point, which need not be the same to the last bit.

    Args:
        values: of the contents.
        relative: how far they may be off, by the size of what is expected.
        absolute: what is added to that.
    """

    values: np.ndarray[Any, Any]
    relative: float = 0.0
    absolute: float = 0.0

    def off(self, found: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Which elements of an array of the same shape are too far from these. NaN equals NaN."""
        mine, theirs = (each.astype(np.float64) for each in (found, self.values))
        with np.errstate(invalid="ignore", over="ignore"):
            close = np.isclose(mine, theirs, self.relative, self.absolute, equal_nan=True)
        different: np.ndarray[Any, Any] = ~close
        return different


Contents = np.ndarray[Any, Any] | Floats | str
"""An array of integers, which have to be equal; floats; or a fact as text."""

Seen = Mapping[str, Contents]
"""What is seen after a call, by name."""


@dataclass(frozen=True)
class Source:
    """What a scenario is made from; equal ones make equal scenarios.

    Args:
        seed: of the run.
        number: of the scenario, from 0.
        features: those of the variant; the scenario needs no other.
        sizes: numbers that the variant's own code names, at which it may change its ways.
        deep: whether scenarios may take seconds rather than a fraction of one.
    """

    seed: int
    number: int
    features: frozenset[str]
    sizes: tuple[int, ...] = ()
    deep: bool = False

    def rng(self) -> np.random.Generator:
        """The random numbers of the scenario."""
        return np.random.default_rng([self.seed, self.number])


class Player(ABC):
    """Plays a scenario on a variant or on the reference; where torch may be loaded."""

    @abstractmethod
    def play(
        self, variant: type[Any], scenario: Any, device: torch.device, guard: Guard | None
    ) -> Iterator[Seen]:
        """Makes the calls of a scenario one by one.

        Args:
            variant: class of the variant, or of the reference.
            scenario: from the suite's explorer.
            device: where the variant's tensors live.
            guard: holds while code of the variant runs; `None` for the reference, which is not
                asked for what has to be refused.

        Yields:
            After each call whatever must be the same for the variant and the reference.
        """


class Explorer(ABC):
    """Makes scenarios of a suite. Like `suite.py`, its module must not load torch.

    A scenario is any object that can be pickled.
    """

    @abstractmethod
    def scenario(self, source: Source) -> Any:
        """The scenario that a source makes: legal calls, and some that have to be refused."""

    def abilities(self, variant: type[Any]) -> frozenset[str]:
        """What else decides which calls it gets, by names that stand among its features then."""
        return frozenset()

    def unexplored(self, variant: type[Any]) -> str:
        """Why there are no scenarios for a variant; empty: there are."""
        return ""

    @abstractmethod
    def title(self, scenario: Any) -> str:
        """A few words on it, for messages."""

    @abstractmethod
    def lines(self, scenario: Any) -> Sequence[str]:
        """How it is set up, and then its calls, a line each."""

    @abstractmethod
    def smaller(self, scenario: Any) -> Iterator[Any]:
        """Scenarios that are a little simpler, the boldest first; all have to be legal too."""

    @abstractmethod
    def player(self) -> Player:
        """Plays scenarios; it may load torch, so import it in here."""
