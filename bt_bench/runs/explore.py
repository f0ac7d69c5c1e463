"""Exploration of variants: plays scenarios by number until one differs, and makes that one smaller.

The variant plays in one process and the reference in another; this process compares their results.
Expected results never come near the variant, and no comparison is within its reach. The variant's
own process still reads and reports its results.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
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
"""Number of scenarios for each variant, by whether they are deep."""

PROCESSES = {"cpu": 2, "cuda": 8}
"""Number of processes that share the scenarios, by the kind of device.

On a GPU, compiling takes most of the time: on 16 cores `one_launch` took 59 s with 8 processes and
over 110 s with 4 while nothing was compiled, 15 and 18 s after that. Once everything is compiled,
the processes wait for the GPU: `baseline` takes 8 s in one process and 10 s in 8.
"""

_LIMIT_SECONDS = {False: 900.0, True: 10_800.0}

SHRINK_SECONDS = 20.0
MOST_LINES = 24


def limit_seconds(scenarios: int, *, deep: bool) -> float:
    """Return the seconds until a variant is given up: far more than so many scenarios take."""
    return _LIMIT_SECONDS[deep] * max(1.0, scenarios / SCENARIOS[deep])


@dataclass(frozen=True)
class Found:
    """A scenario that a variant gets wrong.

    Args:
        number: number of the scenario.
        title: the purpose of the scenario.
        reason: the fault, in the smallest scenario that shows it.
        lines: setup and calls of that scenario; the last call shows the fault.
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
    """The outcome of exploring one variant.

    Args:
        variant: its name.
        scenarios: number of scenarios played.
        wanted: number of scenarios to play.
        seconds: duration, without the time for making a scenario smaller.
        found: the fault; `None` if none was found.
        skipped: why it was not explored.
        coverage: lines and branches of its own code that the scenarios ran; `None` if not known.
        not_tried: parts that scenarios left out, for lack of memory or the like, in words.
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
        """Return whether time ran out before anything was found: nothing is known of the rest."""
        return self.found is None and not self.skipped and self.scenarios < self.wanted


@dataclass(frozen=True)
class Difference:
    """The first difference between the results of a variant and of the reference.

    Args:
        place: index of the call, from 0.
        name: name of the differing value.
        reason: why the scenario ended there, if it did.
    """

    place: int
    name: str
    reason: Reason | None = None


@dataclass
class _Lane:
    """A process that has the variant, and its share of the scenarios.

    Args:
        runner: runs tasks in the process.
        batches: batches of scenarios, each with the index of its first one among all.
        played: the scenarios played so far, in order; if one is wrong, it is the last.
        at: index of the wrong one among all.
        wrong: the wrong scenario, and its difference.
    """

    runner: Runner
    batches: Sequence[tuple[int, Sequence[Recipe]]]
    played: list[Recipe] = field(default_factory=list)
    at: int = 0
    wrong: tuple[Any, Difference] | None = None


@dataclass
class _SoFar:
    """The progress of all processes.

    Args:
        wanted: number of scenarios to play.
        until: when the arm is given up, by the monotonic clock.
        played: number of scenarios that were right.
        first_wrong: index of the first scenario that was not.
        not_tried: the parts that they left out, in words, each once.
    """

    wanted: int
    until: float
    played: int = 0
    first_wrong: float = math.inf
    not_tried: dict[str, None] = field(default_factory=dict)


@dataclass(eq=False)
class Exploring:
    """An explorer of variants of a suite.

    Args:
        suite: suite of the variants.
        variants: runners of tasks on the variants, each with a process of its own. Batches of
            scenarios take turns among these, the same on any machine.
        references: runs tasks on the reference, in a process without any variant.
        seed: seed of the run.
        deep: whether scenarios may take seconds.
        lines: whether to note which lines and branches of the variants' own code run.
        on_batch: called with a variant's name, the number of scenarios played, and their total.
        on_wrong: called with a variant's name and the number of a wrong scenario, before that one
            is made smaller.
    """

    suite: Suite
    variants: Sequence[Runner]
    references: Runner
    seed: int
    _: KW_ONLY
    deep: bool = False
    lines: bool = False
    on_batch: Callable[[str, int, int], None] = lambda *_: None
    on_wrong: Callable[[str, int], None] = lambda *_: None

    def __post_init__(self) -> None:
        self._explorer = explorer_of(self.suite)
        self._reference_is_asked = Lock()
        self._one_at_a_time = Lock()  # for the explorer, and for reports of progress
        self._large_is_played = Lock()
        # A thread for each process but the first.
        self._lanes = [ThreadPoolExecutor(1) for _ in self.variants[1:]]

    def explore(
        self,
        arms: Sequence[str],
        numbers: Sequence[int] = (),
        recipes: Sequence[Recipe] = (),
        limit: float = math.inf,
    ) -> Iterator[Explored]:
        """Explore each arm, and yield its outcome.

        Args:
            arms: names of variants.
            numbers: numbers of the scenarios to play.
            recipes: further scenarios, which are played first and in order.
            limit: seconds after which an arm is given up, without the time for making a scenario
                smaller.
        """
        surveyed = self.variants[0].run(Survey(), arms)
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
                Recipe(Source(self.seed, number, traits.features, traits.sizes, self.deep))
                for number in numbers
            ]
            yield self._explore(arm, [*recipes, *drawn], limit)

    def _explore(self, arm: str, recipes: Sequence[Recipe], limit: float) -> Explored:
        """Explore an arm: each process plays its own batches, as fast as it can.

        The outcome does not depend on their speed: a process goes on until it is past the first
        wrong scenario of any other.
        """
        started = time.monotonic()
        begins = range(0, len(recipes), BATCH)
        batches = [(begin, recipes[begin : begin + BATCH]) for begin in begins]
        every = len(self.variants)
        lanes = [_Lane(runner, batches[at::every]) for at, runner in enumerate(self.variants)]
        so_far = _SoFar(len(recipes), started + limit)
        self.on_batch(arm, 0, so_far.wanted)
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
        coverage = self._coverage(arm) if self.lines else None
        not_tried = tuple(so_far.not_tried)
        played, wanted = so_far.played, so_far.wanted
        return Explored(arm, played, wanted, taken, coverage=coverage, not_tried=not_tried)

    def _coverage(self, arm: str) -> Coverage | None:
        """Return the coverage of an arm in all processes; `None` if one of them cannot tell."""
        ran = [runner.run(ReadRan(), [arm]) for runner in self.variants[1:]]
        if any(each.failed for each in ran):
            return None
        read = self.variants[0].run(ReadCoverage(tuple(each.value for each in ran)), [arm])
        return None if read.failed else read.value

    def _play(self, arm: str, lane: _Lane, so_far: _SoFar) -> None:
        """Play the batches of a process until the arm gets a scenario wrong."""
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
                self.on_batch(arm, so_far.played, so_far.wanted)

    def _made(self, recipe: Recipe) -> Any:
        with running(self.suite, "scenario"):
            return self._explorer.made(recipe)

    def _first_wrong(
        self,
        arm: str,
        runner: Runner,
        scenarios: Sequence[Any],
        not_tried: dict[str, None] | None = None,
    ) -> tuple[int, Difference] | None:
        """Return the index of the first scenario that an arm gets wrong, and the difference.

        Args:
            arm: the arm that plays.
            runner: runs tasks in its process.
            scenarios: the scenarios, in order.
            not_tried: collects the parts that they leave out.
        """
        task = Play(tuple(scenarios), lines=self.lines)
        finished = runner.run(task, [arm])
        with self._reference_is_asked:
            wanted = self.references.run(task, ()).value
        if arm in finished.failed:  # it took its process with it: which of them did?
            reason = finished.failed[arm]
            if len(scenarios) == 1:
                return 0, Difference(runner.calls_made, reason.code, reason)
            for at, scenario in enumerate(scenarios):
                failing = self._first_wrong(arm, runner, [scenario])
                if failing is not None:
                    return at, failing[1]
            return len(scenarios) - 1, Difference(0, reason.code, reason)
        if not_tried is not None:
            not_tried.update((text, None) for each in finished.value for text in each.not_tried)
        for at, (one, other) in enumerate(zip(wanted, finished.value, strict=True)):
            difference = first_difference(one, other)
            if difference is not None:
                return at, difference
        return None

    def _found(
        self,
        arm: str,
        runner: Runner,
        played: Sequence[Recipe],
        scenario: Any,
        difference: Difference,
    ) -> Found:
        """Describe the fault in a scenario, the last one that a process played.

        The fault is seen again in a fresh process, except a hang, which takes too long.
        """
        recipe = played[-1]
        number, title = recipe.source.number, self._explorer.title(scenario)
        self.on_wrong(arm, number)
        if difference.name != ReasonCode.HUNG:
            runner.renew()
            alone = self._first_wrong(arm, runner, [scenario])
            if alone is None:
                return self._found_among(arm, runner, played, scenario, difference)
            difference = alone[1]
        shrunk = None
        if difference.name not in _OF_THE_PROCESS:
            shrunk = self._shrunk(arm, runner, recipe, scenario, difference)
        if shrunk is not None:
            recipe, scenario, difference = shrunk
        elif difference.name != ReasonCode.TAMPERED:  # which is seen once all calls are made
            cut = Change(Cut.UNTIL, difference.place)
            recipe = replace(recipe, changes=(*recipe.changes, cut))
            scenario = self._explorer.until(scenario, difference.place)
        told = self._told(arm, runner, scenario, difference)
        return Found(number, title, told, self._lines_of(scenario), (recipe,))

    def _found_among(
        self,
        arm: str,
        runner: Runner,
        played: Sequence[Recipe],
        scenario: Any,
        difference: Difference,
    ) -> Found:
        """Describe the fault in a scenario that is right in a process of its own."""
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
        number, title = played[-1].source.number, self._explorer.title(scenario)
        told = Reason(code=reason.code, message=message)
        return Found(number, title, told, self._lines_of(scenario), needs)

    def _lines_of(self, scenario: Any) -> tuple[str, ...]:
        """Return a scenario's lines; of many, the first and the last."""
        lines = tuple(self._explorer.lines(scenario))
        if len(lines) <= MOST_LINES:
            return lines
        half = MOST_LINES // 2
        return (*lines[:half], f"… {len(lines) - 2 * half} more calls …", *lines[-half:])

    def _shrunk(
        self, arm: str, runner: Runner, recipe: Recipe, scenario: Any, difference: Difference
    ) -> tuple[Recipe, Any, Difference] | None:
        """Return the smallest scenario with the same fault that can be found in time.

        `None` if it is right in a fresh process: it was wrong because of earlier tries.
        """
        until = time.monotonic() + SHRINK_SECONDS

        def take(change: Change, candidate: Any) -> bool:
            nonlocal recipe, scenario, difference
            failing = self._first_wrong(arm, runner, [candidate])
            if failing is None or failing[1].name != difference.name:
                return False
            recipe = replace(recipe, changes=(*recipe.changes, change))
            scenario, difference = candidate, failing[1]
            return True

        def take_until() -> None:
            place = difference.place
            take(Change(Cut.UNTIL, place), self._explorer.until(scenario, place))

        def take_smaller() -> bool:
            for at, candidate in enumerate(self._explorer.smaller(scenario)):
                if time.monotonic() > until:
                    return False
                if take(Change(Cut.SMALLER, at), candidate):
                    return True
            return False

        take_until()
        while take_smaller():
            pass
        if time.monotonic() <= until:
            take_until()
        runner.renew()
        again = self._first_wrong(arm, runner, [scenario])
        if again is None or again[1].name != difference.name:
            return None
        return recipe, scenario, again[1]

    def _told(self, arm: str, runner: Runner, scenario: Any, difference: Difference) -> Reason:
        """Return the fault, with the first differing element and both values."""
        where = f"call {difference.place + 1}"
        if difference.reason is not None:
            reason = difference.reason
            if reason.code is ReasonCode.TAMPERED:  # seen once all calls have been made
                return reason
            return Reason(code=reason.code, message=f"{where}: {reason.message}")
        task = Play((scenario,), whole=difference.place)
        wanted = self.references.run(task, ()).value[0].whole or {}
        finished = runner.run(task, [arm])
        found = {} if arm in finished.failed else finished.value[0].whole or {}
        name = difference.name
        text = _described(name, found.get(name), wanted.get(name))
        return Reason(code=ReasonCode.WRONG_RESULT, message=f"{where}: {text}")


def first_difference(wanted: Played, found: Played) -> Difference | None:
    """Return the first difference."""
    for place, (right, seen) in enumerate(zip(wanted.digests, found.digests, strict=False)):
        for name, value in right.items():
            if not _same(value, seen.get(name)):
                return Difference(place, name)
    if found.reason is not None:
        return Difference(len(found.digests), found.reason.code, found.reason)
    if len(found.digests) != len(wanted.digests):
        return Difference(min(len(found.digests), len(wanted.digests)), "number of calls")
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
