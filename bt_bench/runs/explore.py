"""Explores variants: plays scenarios by number until one differs, and makes that one smaller.

The variant plays in one process and the reference in another; this one compares what they saw. So
what is expected never comes near the variant, and no comparison is within its reach. What is seen
of the variant is still read and told by its own process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np

from bt_bench.protocol import Contents, Floats, Source, Suite, running
from bt_bench.results import Reason, ReasonCode
from bt_bench.worker import (
    Coverage,
    Play,
    Played,
    ReadCoverage,
    Runner,
    Survey,
    Surveyed,
    explorer_of,
)

# Each further try of these takes a new process.
_OF_THE_PROCESS = (ReasonCode.CRASHED, ReasonCode.TAMPERED)
BATCH = 6  # scenarios that are played before any is compared
EXPLORE_SECONDS = {False: 15.0, True: 180.0}
"""For each variant, by whether the scenarios are deep ones."""

FEWEST = 42
"""Scenarios that are played by default where the variant or the machine is slow, too."""

LONGER = 4 / 3
"""How much longer it may take for that."""

SHRINK_SECONDS = 20.0
MOST_LINES = 24


@dataclass(frozen=True)
class Found:
    """A scenario on which a variant is wrong.

    Args:
        number: of the scenario.
        title: what it was made for.
        reason: what is wrong, of the smallest scenario that shows it.
        lines: how that one is set up, and its calls; the last is the one that shows it.
        needs: the scenarios to play to see it again: this one, or all up to it.
    """

    number: int
    title: str
    reason: Reason
    lines: tuple[str, ...]
    needs: str


@dataclass(frozen=True)
class Explored:
    """How a variant did.

    Args:
        variant: its name.
        scenarios: how many were played.
        seconds: how long that took, without making one smaller.
        found: what is wrong; `None`: nothing was found.
        skipped: why it was not explored.
        coverage: which lines of its own code the scenarios ran; `None` if that is not known.
    """

    variant: str
    scenarios: int
    seconds: float
    found: Found | None = None
    skipped: str = ""
    coverage: Coverage | None = None


@dataclass(frozen=True)
class _Difference:
    """Where what a variant saw differs from what the reference saw.

    Args:
        place: of the call, from 0.
        name: of what differs.
        reason: if the scenario ended there, why.
    """

    place: int
    name: str
    reason: Reason | None = None


class Exploring:
    """Explores variants of a suite.

    Args:
        suite: of the variants.
        variants: runs tasks on them.
        references: runs tasks on the reference, in a process that no variant is in.
        seed: of the run.
        deep: whether scenarios may take seconds.
        lines: whether to note which lines of the variants' own code run.
        on_batch: is told how far a variant has been explored: its name, how many scenarios were
            played, and in how many seconds.
    """

    def __init__(
        self,
        suite: Suite,
        variants: Runner,
        references: Runner,
        seed: int,
        *,
        deep: bool = False,
        lines: bool = False,
        on_batch: Callable[[str, int, float], None] = lambda *_: None,
    ) -> None:
        self._on_batch = on_batch
        self._explorer = explorer_of(suite)
        self._suite = suite
        self._variants = variants
        self._references = references
        self._seed = seed
        self._deep = deep
        self._lines = lines

    def explore(
        self,
        arms: Sequence[str],
        seconds: float,
        numbers: Sequence[int] | None = None,
        fewest: int = 0,
    ) -> Iterator[Explored]:
        """Explores each arm.

        Args:
            arms: names of variants.
            seconds: for each, not counting how long a found scenario is made smaller.
            numbers: the scenarios to play; `None`: from 0 on, as many as there is time for.
            fewest: scenarios that may take a third longer.
        """
        surveyed = self._variants.run(Survey(), arms)
        for arm in arms:
            if arm in surveyed.failed:
                failed = Found(0, "survey", surveyed.failed[arm], (), "0")
                yield Explored(arm, 0, 0.0, failed)
                continue
            traits = surveyed.value[arm]
            if traits.skipped:
                yield Explored(arm, 0, 0.0, skipped=traits.skipped)
                continue
            yield self._explore(arm, traits, seconds, numbers, fewest)

    def _explore(
        self,
        arm: str,
        traits: Surveyed,
        seconds: float,
        numbers: Sequence[int] | None,
        fewest: int,
    ) -> Explored:
        started = time.monotonic()
        played = 0
        for batch in _batches(count() if numbers is None else numbers):
            scenarios = [self._scenario(traits, number) for number in batch]
            failing = self._first_wrong(arm, scenarios)
            if failing is not None:
                at, difference = failing
                taken = time.monotonic() - started
                found = self._found(arm, batch[at], scenarios[at], difference)
                return Explored(arm, played + at + 1, taken, found)
            played += len(batch)
            self._on_batch(arm, played, time.monotonic() - started)
            limit = seconds if played >= fewest else LONGER * seconds
            if numbers is None and time.monotonic() - started > limit:
                break
        taken = time.monotonic() - started
        if not self._lines:
            return Explored(arm, played, taken)
        read = self._variants.run(ReadCoverage(), [arm])
        return Explored(arm, played, taken, coverage=None if read.failed else read.value)

    def _scenario(self, traits: Surveyed, number: int) -> Any:
        source = Source(self._seed, number, traits.features, traits.sizes, self._deep)
        with running(self._suite, "scenario"):
            return self._explorer.scenario(source)

    def _first_wrong(self, arm: str, scenarios: Sequence[Any]) -> tuple[int, _Difference] | None:
        """The first scenario on which an arm is wrong."""
        task = Play(tuple(scenarios), lines=self._lines)
        finished = self._variants.run(task, [arm])
        wanted = self._references.run(task, ()).value
        if arm in finished.failed:  # it took its process with it: which of them did?
            reason = finished.failed[arm]
            if len(scenarios) == 1:
                return 0, _Difference(0, reason.code, reason)
            for at, scenario in enumerate(scenarios):
                failing = self._first_wrong(arm, [scenario])
                if failing is not None:
                    return at, failing[1]
            return len(scenarios) - 1, _Difference(0, reason.code, reason)
        for at, (one, other) in enumerate(zip(wanted, finished.value, strict=True)):
            difference = _difference(one, other)
            if difference is not None:
                return at, difference
        return None

    def _found(self, arm: str, number: int, scenario: Any, difference: _Difference) -> Found:
        title = self._explorer.title(scenario)
        alone = self._first_wrong(arm, [scenario])
        if alone is None:
            reason = difference.reason or Reason(
                code=ReasonCode.WRONG_RESULT, message=difference.name
            )
            message = (
                f"call {difference.place + 1}: {reason.message}; right when it is played again on "
                "its own"
            )
            lines = tuple(self._explorer.lines(scenario))
            again = Reason(code=reason.code, message=message)
            return Found(number, title, again, _cut(lines), f"0-{number}")
        difference = alone[1]
        if difference.reason is None or difference.reason.code not in _OF_THE_PROCESS:
            scenario, difference = self._shrunk(arm, scenario, difference)
        lines = tuple(self._explorer.lines(scenario))
        return Found(number, title, self._told(arm, scenario, difference), _cut(lines), f"{number}")

    def _shrunk(self, arm: str, scenario: Any, difference: _Difference) -> tuple[Any, _Difference]:
        """The smallest scenario that is wrong in the same way, as far as time allows."""
        until = time.monotonic() + SHRINK_SECONDS
        improved = True
        while improved:
            improved = False
            for candidate in self._explorer.smaller(scenario):
                if time.monotonic() > until:
                    return scenario, difference
                failing = self._first_wrong(arm, [candidate])
                if failing is not None and failing[1].name == difference.name:
                    scenario, difference, improved = candidate, failing[1], True
                    break
        return scenario, difference

    def _told(self, arm: str, scenario: Any, difference: _Difference) -> Reason:
        """What is wrong, with the first element and both values."""
        where = f"call {difference.place + 1}"
        if difference.reason is not None:
            reason = difference.reason
            if reason.code is ReasonCode.TAMPERED:  # seen once all calls have been made
                return reason
            return Reason(code=reason.code, message=f"{where}: {reason.message}")
        task = Play((scenario,), whole=difference.place)
        wanted = self._references.run(task, ()).value[0].whole or {}
        finished = self._variants.run(task, [arm])
        found = {} if arm in finished.failed else finished.value[0].whole or {}
        name = difference.name
        text = _described(name, found.get(name), wanted.get(name))
        return Reason(code=ReasonCode.WRONG_RESULT, message=f"{where}: {text}")


def _batches(numbers: Iterable[int]) -> Iterator[list[int]]:
    rest = iter(numbers)
    while batch := list(islice(rest, BATCH)):
        yield batch


def _difference(wanted: Played, found: Played) -> _Difference | None:
    """The first thing that differs."""
    for place, (right, seen) in enumerate(zip(wanted.digests, found.digests, strict=False)):
        for name, value in right.items():
            if not _same(value, seen.get(name)):
                return _Difference(place, name)
    if found.reason is not None:
        return _Difference(len(found.digests), found.reason.code, found.reason)
    if len(found.digests) != len(wanted.digests):
        return _Difference(min(len(found.digests), len(wanted.digests)), "number of calls")
    return None


def _same(wanted: str | Floats, found: str | Floats | None) -> bool:
    if not isinstance(wanted, Floats) or not isinstance(found, Floats):
        return wanted == found
    return wanted.values.shape == found.values.shape and not wanted.off(found.values).any()


def _described(name: str, seen: Contents | None, expected: Contents | None) -> str:
    if isinstance(expected, str) or isinstance(seen, str) or seen is None or expected is None:
        return f"{name}: {seen}; expected {expected}"
    if isinstance(expected, Floats) != isinstance(seen, Floats):
        has, needs = ("floats", "integers") if isinstance(seen, Floats) else ("integers", "floats")
        return f"{name} has {has}; expected {needs}"
    found, wanted = (each.values if isinstance(each, Floats) else each for each in (seen, expected))
    if found.shape != wanted.shape:
        return f"{name} has shape {found.shape}; expected {wanted.shape}"
    within = ""
    if isinstance(expected, Floats):
        different = np.argwhere(expected.off(found))
        if expected.relative or expected.absolute:
            within = f" within {expected.relative:g} of its size and {expected.absolute:g}"
    else:
        different = np.argwhere(found != wanted)
    if not len(different):
        return f"{name} differed, and is right when it is played again"
    at = tuple(int(index) for index in different[0])
    place = f"[{', '.join(map(str, at))}]" if at else ""
    return (
        f"{name}{place} is {found[at]}, expected {wanted[at]}{within}; {len(different)} of "
        f"{found.size} elements differ"
    )


def _cut(lines: Sequence[str]) -> tuple[str, ...]:
    """The first and the last lines of many."""
    if len(lines) <= MOST_LINES:
        return tuple(lines)
    half = MOST_LINES // 2
    return (*lines[:half], f"… {len(lines) - 2 * half} more calls …", *lines[-half:])
