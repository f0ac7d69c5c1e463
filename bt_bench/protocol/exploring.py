"""Scenarios of a suite: sequences of calls that no workload has, found by number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bt_bench.base.errors import UsageError

if TYPE_CHECKING:
    import torch

    from bt_bench.protocol.driver import Guard


@dataclass(frozen=True, eq=False)
class Floats:
    """Floating-point contents that need not match to the last bit.

    Args:
        values: the expected values.
        relative: tolerance relative to the size of the expected value.
        absolute: tolerance added to that.
    """

    values: np.ndarray[Any, Any]
    relative: float = 0.0
    absolute: float = 0.0

    def off(self, found: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a mask of the elements of an equally shaped array that are out of tolerance.

        NaN equals NaN, and without a tolerance 0.0 and -0.0 differ.
        """
        mine, theirs = (each.astype(np.float64) for each in (found, self.values))
        with np.errstate(invalid="ignore", over="ignore"):
            close = np.isclose(mine, theirs, self.relative, self.absolute, equal_nan=True)
        different: np.ndarray[Any, Any] = ~close
        if not (self.relative or self.absolute):
            zeros = (mine == 0) & (theirs == 0)
            different |= zeros & (np.signbit(mine) != np.signbit(theirs))
        return different


Contents = np.ndarray[Any, Any] | Floats | str
"""An array of integers, which have to be equal; floats; or a fact as text."""

Seen = Mapping[str, Contents]
"""Contents observed after a call, by name."""


@dataclass(frozen=True)
class Source:
    """The origin of a scenario; equal sources make equal scenarios.

    Args:
        seed: seed of the run.
        number: number of the scenario, from 0.
        features: features of the variant; the scenario needs no other.
        sizes: numbers in the variant's own code, at which its behaviour may change.
        deep: whether scenarios may take seconds rather than a fraction of one.
    """

    seed: int
    number: int
    features: frozenset[str]
    sizes: tuple[int, ...] = ()
    deep: bool = False

    def rng(self) -> np.random.Generator:
        """Return the scenario's random number generator."""
        return np.random.default_rng([self.seed, self.number])


class Cut(StrEnum):
    """Ways to make a scenario smaller."""

    SMALLER = "smaller"  # one of those that `Explorer.smaller` yields
    UNTIL = "until"  # cut off after a call


class Change(NamedTuple):
    """One step from a scenario to a smaller one.

    Args:
        cut: the kind of step.
        number: index among the smaller scenarios, or of the last call that is kept; from 0.
    """

    cut: Cut
    number: int


@dataclass(frozen=True)
class Recipe:
    """Instructions for making a scenario; they need no variant, and so outlive its edits.

    Args:
        source: the scenario's source, as drawn.
        changes: the changes that made it smaller, in their order.
    """

    source: Source
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Excerpt:
    """Consecutive steps of a recording, to be played on tables of their own.

    Args:
        steps: number of steps.
        ways: scenarios that make the same calls in different ways, by the name of the way.
    """

    steps: int
    ways: Mapping[str, Any]


class RecordedCalls(ABC):
    """An engine's recorded calls. All of it was read once, so it is known to be whole.

    Attributes:
        lines: facts for people, a line each; the first is short.
        features: traits that a variant needs for the calls.
        steps: number of steps in the whole file.
    """

    lines: Sequence[str]
    features: frozenset[str]
    steps: int

    @abstractmethod
    def excerpts(self, first: int, steps: int | None) -> Iterator[Excerpt]:
        """Yield consecutive excerpts, each of which takes little memory.

        Args:
            first: number of the first step, from 0.
            steps: the most steps in all; `None`: up to the end.
        """

    @abstractmethod
    def adapted(self, scenario: Any, features: frozenset[str]) -> Any:
        """Return the scenario as a variant can play it; the same object if nothing differs.

        Args:
            scenario: the scenario.
            features: the variant's features, and its abilities.
        """

    @abstractmethod
    def located(self, scenario: Any, place: int) -> tuple[int, str]:
        """Return the step in the file of a call, and the call in words.

        Args:
            scenario: the scenario.
            place: index of the call, as the player counts them.
        """


class Player(ABC):
    """A player of scenarios on a variant or on the reference, where torch may be loaded."""

    not_tried: Sequence[str] = ()
    """Parts of its scenario that the last play left out, for lack of memory or the like."""

    @abstractmethod
    def play(
        self, variant: type[Any], scenario: Any, device: torch.device, guard: Guard | None
    ) -> Iterator[Seen]:
        """Make the calls of a scenario one by one.

        Args:
            variant: class of the variant, or of the reference.
            scenario: from the suite's explorer.
            device: where the variant's tensors live.
            guard: holds while code of the variant runs; `None` for the reference, which skips
                calls that must be refused.

        Yields:
            After each call, everything that must be the same for the variant and the reference.
        """


class Explorer(ABC):
    """A maker of a suite's scenarios. Like `suite.py`, its module must not load torch.

    A scenario is any object that can be pickled.
    """

    @abstractmethod
    def scenario(self, source: Source) -> Any:
        """Return the scenario of a source: legal calls, and some that must be refused."""

    def abilities(self, variant: type[Any]) -> frozenset[str]:
        """Return further traits that decide which calls a variant gets, to add to its features."""
        return frozenset()

    def unexplored(self, variant: type[Any]) -> str:
        """Return why there are no scenarios for a variant; empty if there are some."""
        return ""

    @abstractmethod
    def title(self, scenario: Any) -> str:
        """Return a few words on a scenario, for messages."""

    def is_large(self, scenario: Any) -> bool:
        """Return whether a scenario takes so much memory that no large one may play beside it.

        Its player has to return that memory to the device.
        """
        return False

    @abstractmethod
    def lines(self, scenario: Any) -> Sequence[str]:
        """Return how a scenario is set up and then its calls, a line each."""

    @abstractmethod
    def smaller(self, scenario: Any) -> Iterator[Any]:
        """Yield slightly simpler scenarios, the boldest first; all have to be legal too."""

    def until(self, scenario: Any, place: int) -> Any:
        """Return the scenario cut off after a call; unchanged if it cannot be cut.

        Args:
            scenario: the scenario to cut.
            place: index of the last call to keep, from 0, as the player counts them.
        """
        return scenario

    def recording(self, path: Path) -> RecordedCalls:
        """Read a recording of an engine's calls.

        Raises:
            UsageError: if it is damaged or something else, naming file and place; or if the suite
                has no recordings.
        """
        raise UsageError(f"{path}: recordings are of block tables, and this suite has none")

    def made(self, recipe: Recipe) -> Any:
        """Make the scenario of a recipe.

        Raises:
            UsageError: if the recipe's changes do not fit the scenarios of this version.
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
        """Return a player of scenarios; it may load torch, so import it in here."""
