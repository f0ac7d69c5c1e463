"""Explores variants: plays scenarios by number until one differs, and makes that one smaller.

The variant plays in one process and the reference in another; this one compares what they saw. So
what is expected never comes near the variant, and no comparison is within its reach. What is seen
of the variant is still read and told by its own process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np

from bt_bench.protocol import (
    Change,
    Contents,
    Cut,
    Floats,
    Recipe,
    Source,
    Suite,
    running,
)
from bt_bench.results import Reason, ReasonCode
from bt_bench.worker import (
    Coverage,
    Play,
    Played,
    ReadCoverage,
    ReadRan,
    Runner,
    Survey,
    explorer_of,
    in_common,
)

# Each further try of these takes a new process, and the time until a call counts as hung.
_OF_THE_PROCESS = (ReasonCode.CRASHED, ReasonCode.HUNG, ReasonCode.TAMPERED)
BATCH = 4  # scenarios that are played before any is compared

SCENARIOS = {False: 98, True: 400}
"""How many each variant is explored with, by whether they are deep ones."""

PROCESSES = {"cpu": 2, "cuda": 8}
"""Among how many scenarios are dealt out, by the kind of device.

On a GPU most of the time is that of compiling: on 16 cores `one_launch` took 59 s with 8 processes
and over 110 s with 4 while nothing was compiled, 15 and 18 s after that. Once all is compiled the
GPU is what they wait for: `baseline` takes 8 s in one process and 10 s in 8.
"""

_LIMIT_SECONDS = {False: 900.0, True: 10_800.0}

SHRINK_SECONDS = 20.0
MOST_LINES = 24


def limit_seconds(scenarios: int, *, deep: bool) -> float:
    """Return after how long a variant is given up: far more than so many scenarios take."""
    return _LIMIT_SECONDS[deep] * max(1.0, scenarios / SCENARIOS[deep])


@dataclass(frozen=True)
class Found:
    """A scenario on which a variant is wrong.

    Args:
        number: of the scenario.
        title: what it was made for.
        reason: what is wrong, of the smallest scenario that shows it.
        lines: how that one is set up, and its calls; the last is the one that shows it.
        needs: the scenarios to play in a fresh process, in order, to see it again; none if that
            does not show it.
    """

    number: int
    title: str
    reason: Reason
    lines: tuple[str, ...]
    needs: tuple[Recipe, ...]


@dataclass(frozen=True)
class Explored:
    """How a variant did.

    Args:
        variant: its name.
        scenarios: how many were played.
        wanted: how many there were to play.
        seconds: how long that took, without making one smaller.
        found: what is wrong; `None`: nothing was found.
        skipped: why it was not explored.
        coverage: which lines and branches of its own code the scenarios ran; `None` if that is
            not known.
        not_tried: what scenarios left out for lack of memory or the like, in words.
    """

    variant: str
    scenarios: int
    wanted: int
    seconds: float
    found: Found | None = None
    skipped: str = ""
    coverage: Coverage | None = None
    not_tried: tuple[str, ...] = ()

    @property
    def stopped(self) -> bool:
        """Tell whether time ran out before anything was found: nothing is known of the rest."""
        return self.found is None and not self.skipped and self.scenarios < self.wanted


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


@dataclass
class _Lane:
    """Keep a process that has the variant, and its share of the scenarios.

    Args:
        runner: runs tasks in it.
        batches: of scenarios, each with the place of its first one among all.
        played: what it has played, in order; the last of these is the wrong one, if one is.
        at: the place of that one among all.
        wrong: that one, and what differs.
    """

    runner: Runner
    batches: Sequence[tuple[int, Sequence[Recipe]]]
    played: list[Recipe] = field(default_factory=list)
    at: int = 0
    wrong: tuple[Any, _Difference] | None = None


@dataclass
class _SoFar:
    """Keep how far all processes are.

    Args:
        wanted: how many scenarios are to be played.
        started: when the arm was begun, by the clock.
        until: when it is given up.
        played: how many were right.
        first_wrong: the place of the first that was not.
        not_tried: what they left out, in words, each once.
    """

    wanted: int
    started: float
    until: float
    played: int = 0
    first_wrong: float = math.inf
    not_tried: dict[str, None] = field(default_factory=dict)


class Exploring:
    """Explores variants of a suite.

    Args:
        suite: of the variants.
        variants: each runs tasks on them, in a process of its own; batches of scenarios take turns
            among these, the same on any machine.
        references: runs tasks on the reference, in a process that no variant is in.
        seed: of the run.
        deep: whether scenarios may take seconds.
        lines: whether to note which lines and branches of the variants' own code run.
        on_batch: is told how far a variant has been explored: its name, how many scenarios were
            played, of how many, and in how many seconds.
    """

    def __init__(
        self,
        suite: Suite,
        variants: Sequence[Runner],
        references: Runner,
        seed: int,
        *,
        deep: bool = False,
        lines: bool = False,
        on_batch: Callable[[str, int, int, float], None] = lambda *_: None,
    ) -> None:
        self._on_batch = on_batch
        self._explorer = explorer_of(suite)
        self._suite = suite
        self._variants = variants
        self._references = references
        self._seed = seed
        self._deep = deep
        self._lines = lines
        self._reference_is_asked = Lock()
        self._one_at_a_time = Lock()  # the explorer is asked, and progress is told
        self._large_is_played = Lock()
        # A thread for each process but the first.
        self._lanes = [ThreadPoolExecutor(1) for _ in variants[1:]]

    def explore(
        self,
        arms: Sequence[str],
        numbers: Sequence[int] = (),
        recipes: Sequence[Recipe] = (),
        limit: float = math.inf,
    ) -> Iterator[Explored]:
        """Explore each arm.

        Args:
            arms: names of variants.
            numbers: of the scenarios to play.
            recipes: of more, which are played first and in order.
            limit: seconds after which an arm is given up, without those that making a scenario
                smaller takes.
        """
        surveyed = self._variants[0].run(Survey(), arms)
        for arm in arms:
            wanted = len(recipes) + len(numbers)
            if arm in surveyed.failed:
                failed = Found(0, "survey", surveyed.failed[arm], (), ())
                yield Explored(arm, 0, wanted, 0.0, failed)
                continue
            traits = surveyed.value[arm]
            if traits.skipped:
                yield Explored(arm, 0, wanted, 0.0, skipped=traits.skipped)
                continue
            drawn = [
                Recipe(Source(self._seed, number, traits.features, traits.sizes, self._deep))
                for number in numbers
            ]
            yield self._explore(arm, [*recipes, *drawn], limit)

    def _explore(self, arm: str, recipes: Sequence[Recipe], limit: float) -> Explored:
        """Explore an arm: each process plays its own batches, as fast as it can.

        What is told does not depend on their speed: a process goes on until it is past the first
        scenario that another has found.
        """
        started = time.monotonic()
        begins = range(0, len(recipes), BATCH)
        batches = [(begin, recipes[begin : begin + BATCH]) for begin in begins]
        every = len(self._variants)
        lanes = [_Lane(runner, batches[at::every]) for at, runner in enumerate(self._variants)]
        so_far = _SoFar(len(recipes), started, started + limit)
        waiting = [
            thread.submit(self._play, arm, lane, so_far)
            for thread, lane in zip(self._lanes, lanes[1:], strict=True)
        ]
        try:
            self._play(arm, lanes[0], so_far)
        finally:
            wait(waiting)  # or a process would be asked twice at once
        for each in waiting:
            each.result()
        taken = time.monotonic() - started
        wrong = [lane for lane in lanes if lane.wrong is not None]
        if wrong:
            lane = min(wrong, key=lambda one: one.at)
            assert lane.wrong is not None
            found = self._found(arm, lane.runner, lane.played, *lane.wrong)
            return Explored(arm, lane.at + 1, so_far.wanted, taken, found)
        coverage = self._coverage(arm) if self._lines else None
        not_tried = tuple(so_far.not_tried)
        played, wanted = so_far.played, so_far.wanted
        return Explored(arm, played, wanted, taken, coverage=coverage, not_tried=not_tried)

    def _coverage(self, arm: str) -> Coverage | None:
        """Count what ran of an arm in all processes; `None` if one of them cannot tell."""
        ran = [runner.run(ReadRan(), [arm]) for runner in self._variants[1:]]
        if any(each.failed for each in ran):
            return None
        read = self._variants[0].run(ReadCoverage(tuple(each.value for each in ran)), [arm])
        return None if read.failed else read.value

    def _play(self, arm: str, lane: _Lane, so_far: _SoFar) -> None:
        """Play the batches of a process, up to its first scenario on which the arm is wrong."""
        try:
            self._play_batches(arm, lane, so_far)
        except BaseException:
            so_far.first_wrong = -1  # nobody goes on
            raise

    def _play_batches(self, arm: str, lane: _Lane, so_far: _SoFar) -> None:
        for begin, batch in lane.batches:
            if begin > so_far.first_wrong or time.monotonic() > so_far.until:
                return
            with self._one_at_a_time:
                made = [self._made(recipe) for recipe in batch]
                is_large = any(map(self._explorer.is_large, made))
            with self._large_is_played if is_large else nullcontext():
                failing = self._first_wrong(arm, lane.runner, made, so_far.not_tried)
            with self._one_at_a_time:
                if failing is not None:
                    at, difference = failing
                    lane.at, lane.wrong = begin + at, (made[at], difference)
                    lane.played += batch[: at + 1]
                    so_far.first_wrong = min(so_far.first_wrong, lane.at)
                    return
                lane.played += batch
                so_far.played += len(batch)
                taken = time.monotonic() - so_far.started
                self._on_batch(arm, so_far.played, so_far.wanted, taken)

    def _made(self, recipe: Recipe) -> Any:
        with running(self._suite, "scenario"):
            return self._explorer.made(recipe)

    def _first_wrong(
        self,
        arm: str,
        runner: Runner,
        scenarios: Sequence[Any],
        not_tried: dict[str, None] | None = None,
    ) -> tuple[int, _Difference] | None:
        """Return the place of the first scenario on which an arm is wrong, and what differs.

        Args:
            arm: that plays.
            runner: of its process.
            scenarios: in order.
            not_tried: gets what they leave out.
        """
        task = Play(tuple(scenarios), lines=self._lines)
        finished = runner.run(task, [arm])
        with self._reference_is_asked:
            wanted = self._references.run(task, ()).value
        if arm in finished.failed:  # it took its process with it: which of them did?
            reason = finished.failed[arm]
            if len(scenarios) == 1:
                return 0, _Difference(runner.calls_made, reason.code, reason)
            for at, scenario in enumerate(scenarios):
                failing = self._first_wrong(arm, runner, [scenario])
                if failing is not None:
                    return at, failing[1]
            return len(scenarios) - 1, _Difference(0, reason.code, reason)
        if not_tried is not None:
            not_tried.update((text, None) for each in finished.value for text in each.not_tried)
        for at, (one, other) in enumerate(zip(wanted, finished.value, strict=True)):
            difference = _difference(one, other)
            if difference is not None:
                return at, difference
        return None

    def _found(
        self,
        arm: str,
        runner: Runner,
        played: Sequence[Recipe],
        scenario: Any,
        difference: _Difference,
    ) -> Found:
        """Tell what is wrong in a scenario, the last of those that a process played.

        What is told is seen in a fresh process, but for what hangs, which takes too long.
        """
        recipe = played[-1]
        number, title = recipe.source.number, self._explorer.title(scenario)
        if difference.name != ReasonCode.HUNG:
            runner.renew()
            alone = self._first_wrong(arm, runner, [scenario])
            if alone is None:
                return self._found_among(arm, runner, played, scenario, difference)
            difference = alone[1]
        cut = Change(Cut.UNTIL, difference.place)
        until = self._explorer.until(scenario, difference.place)
        if difference.name in _OF_THE_PROCESS:
            if difference.name != ReasonCode.TAMPERED:  # which is seen once all calls are made
                recipe, scenario = replace(recipe, changes=(*recipe.changes, cut)), until
        else:
            shrunk = self._shrunk(arm, runner, recipe, scenario, difference)
            runner.renew()
            again = self._first_wrong(arm, runner, [shrunk[1]])
            if again is not None and again[1].name == shrunk[2].name:
                recipe, scenario, difference = shrunk[0], shrunk[1], again[1]
            else:  # it was wrong because of those that were tried before
                recipe, scenario = replace(recipe, changes=(*recipe.changes, cut)), until
        told = self._told(arm, runner, scenario, difference)
        lines = tuple(self._explorer.lines(scenario))
        return Found(number, title, told, _cut(lines), (recipe,))

    def _found_among(
        self,
        arm: str,
        runner: Runner,
        played: Sequence[Recipe],
        scenario: Any,
        difference: _Difference,
    ) -> Found:
        """Tell what is wrong in a scenario that is right in a process of its own."""
        reason = difference.reason or Reason(code=ReasonCode.WRONG_RESULT, message=difference.name)
        message = f"call {difference.place + 1}: {reason.message}; right when played on its own"
        needs: tuple[Recipe, ...] = ()
        if len(played) > 1:
            runner.renew()
            again = self._first_wrong(arm, runner, [self._made(recipe) for recipe in played])
            needs = () if again is None else tuple(played[: again[0] + 1])
        if needs:
            message += f", and wrong again after {len(needs) - 1} others in one process"
        else:
            message += (
                ", and in a fresh process after the others too: it takes what this process did "
                "before them, or chance"
            )
        lines = tuple(self._explorer.lines(scenario))
        recipe = played[-1]
        told = Reason(code=reason.code, message=message)
        title = self._explorer.title(scenario)
        return Found(recipe.source.number, title, told, _cut(lines), needs)

    def _shrunk(
        self, arm: str, runner: Runner, recipe: Recipe, scenario: Any, difference: _Difference
    ) -> tuple[Recipe, Any, _Difference]:
        """The smallest scenario that is wrong in the same way, as far as time allows."""
        until = time.monotonic() + SHRINK_SECONDS

        def take(change: Change, candidate: Any) -> bool:
            nonlocal recipe, scenario, difference
            failing = self._first_wrong(arm, runner, [candidate])
            if failing is None or failing[1].name != difference.name:
                return False
            recipe = replace(recipe, changes=(*recipe.changes, change))
            scenario, difference = candidate, failing[1]
            return True

        place = difference.place
        take(Change(Cut.UNTIL, place), self._explorer.until(scenario, place))
        improved = True
        while improved:
            improved = False
            for at, candidate in enumerate(self._explorer.smaller(scenario)):
                if time.monotonic() > until:
                    return recipe, scenario, difference
                if take(Change(Cut.SMALLER, at), candidate):
                    improved = True
                    break
        place = difference.place
        take(Change(Cut.UNTIL, place), self._explorer.until(scenario, place))
        return recipe, scenario, difference

    def _told(self, arm: str, runner: Runner, scenario: Any, difference: _Difference) -> Reason:
        """What is wrong, with the first element and both values."""
        where = f"call {difference.place + 1}"
        if difference.reason is not None:
            reason = difference.reason
            if reason.code is ReasonCode.TAMPERED:  # seen once all calls have been made
                return reason
            return Reason(code=reason.code, message=f"{where}: {reason.message}")
        task = Play((scenario,), whole=difference.place)
        wanted = self._references.run(task, ()).value[0].whole or {}
        finished = runner.run(task, [arm])
        found = {} if arm in finished.failed else finished.value[0].whole or {}
        name = difference.name
        text = _described(name, found.get(name), wanted.get(name))
        return Reason(code=ReasonCode.WRONG_RESULT, message=f"{where}: {text}")


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
    places = tuple(different.T)
    alike = "" if isinstance(expected, Floats) else in_common(found[places], wanted[places])
    place = f"[{', '.join(map(str, at))}]" if at else ""
    return (
        f"{name}{place} is {found[at]}, expected {wanted[at]}{within}; {len(different)} of "
        f"{found.size} elements differ{alike}"
    )


def _cut(lines: Sequence[str]) -> tuple[str, ...]:
    """The first and the last lines of many."""
    if len(lines) <= MOST_LINES:
        return tuple(lines)
    half = MOST_LINES // 2
    return (*lines[:half], f"… {len(lines) - 2 * half} more calls …", *lines[-half:])
