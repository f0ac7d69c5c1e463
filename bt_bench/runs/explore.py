"""Exploration of variants: plays scenarios by number until one differs; `faults.py` explains that.

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
from dataclasses import KW_ONLY, dataclass, field
from threading import Lock
from typing import Any

from bt_bench.protocol import Recipe, Source, Suite
from bt_bench.runs.differences import Difference
from bt_bench.runs.faults import Faults, Found
from bt_bench.worker import (
    Coverage,
    ReadCoverage,
    ReadRan,
    Runner,
    Survey,
    explorer_of,
)

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


def limit_seconds(scenarios: int, *, deep: bool) -> float:
    """Return the seconds until a variant is given up: far more than so many scenarios take."""
    return _LIMIT_SECONDS[deep] * max(1.0, scenarios / SCENARIOS[deep])


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
        self._faults = Faults(
            self.suite, self._explorer, self.references, self.lines, self.on_wrong
        )
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
            found = self._faults.found(arm, lane.runner, lane.played, *lane.wrong)
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
                made = [self._faults.made(recipe) for recipe in batch]
                is_large = any(map(self._explorer.is_large, made))
            with self._large_is_played if is_large else nullcontext():
                failing = self._faults.first_wrong(arm, lane.runner, made, so_far.not_tried)
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
