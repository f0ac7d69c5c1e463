"""How a suite makes up scenarios: sequences of calls that no workload has, found by number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bt_bench.base.errors import UsageError

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


class Cut(StrEnum):
    """Name how a scenario was made smaller."""

    SMALLER = "smaller"  # one of those that `Explorer.smaller` yields
    UNTIL = "until"  # without what comes after a call


class Change(NamedTuple):
    """One step from a scenario to a smaller one.

    Args:
        cut: how.
        number: which of the smaller ones, or the place of the last call that is left; from 0.
    """

    cut: Cut
    number: int


@dataclass(frozen=True)
class Recipe:
    """Say how a scenario is made. It needs nothing of the variant, and so outlives edits of that.

    Args:
        source: of the scenario as it was drawn.
        changes: that made it smaller, in their order.
    """

    source: Source
    changes: tuple[Change, ...] = ()


class Player(ABC):
    """Plays a scenario on a variant or on the reference; where torch may be loaded."""

    not_tried: Sequence[str] = ()
    """Lists what the last play left out of its scenario, for lack of memory or the like."""

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

    def is_large(self, scenario: Any) -> bool:
        """Tell whether it takes so much memory that no other of its kind may be played beside it.

        Its player has to give that memory back to the device.
        """
        return False

    @abstractmethod
    def lines(self, scenario: Any) -> Sequence[str]:
        """How it is set up, and then its calls, a line each."""

    @abstractmethod
    def smaller(self, scenario: Any) -> Iterator[Any]:
        """Scenarios that are a little simpler, the boldest first; all have to be legal too."""

    def until(self, scenario: Any, place: int) -> Any:
        """Return the scenario without what comes after a call; as it is, where none can be cut.

        Args:
            scenario: to be cut.
            place: of the last call that is kept, from 0, as the player counts them.
        """
        return scenario

    def made(self, recipe: Recipe) -> Any:
        """Make the scenario of a recipe.

        Raises:
            UsageError: if its changes do not fit the scenarios of this version.
        """
        scenario = self.scenario(recipe.source)
        for cut, number in recipe.changes:
            if cut is Cut.UNTIL:
                scenario = self.until(scenario, number)
                continue
            scenario = next(islice(self.smaller(scenario), number, None), None)
            if scenario is None:
                raise UsageError(
                    f"scenario {recipe.source.number} has fewer smaller ones than {number + 1}; it "
                    "was stored by another version: check again without it"
                )
        return scenario

    @abstractmethod
    def player(self) -> Player:
        """Plays scenarios; it may load torch, so import it in here."""
