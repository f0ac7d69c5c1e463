"""Faults of variants: which scenario is wrong, the smallest one that shows it, and what differs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from bt_bench.protocol import Change, Cut, Explorer, Recipe, Suite, running
from bt_bench.results import Reason, ReasonCode
from bt_bench.runs.differences import Difference, described, first_difference
from bt_bench.worker import Play, Runner

# Each further try of these takes a new process, and the time until a call counts as hung.
_OF_THE_PROCESS = (ReasonCode.CRASHED, ReasonCode.HUNG, ReasonCode.TAMPERED)

SHRINK_SECONDS = 20.0
MOST_LINES = 24


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


@dataclass(eq=False)
class Faults:
    """A search for faults: scenarios are played by a variant and by the reference.

    Args:
        suite: suite of the variants.
        explorer: makes its scenarios, and makes them smaller.
        references: runs tasks on the reference, in a process without any variant.
        lines: whether to note which lines and branches of the variants' own code run.
        on_wrong: called with a variant's name and the number of a wrong scenario, before that one
            is made smaller.
    """

    suite: Suite
    explorer: Explorer
    references: Runner
    lines: bool
    on_wrong: Callable[[str, int], None]

    def __post_init__(self) -> None:
        self._reference_is_asked = Lock()

    def made(self, recipe: Recipe) -> Any:
        """Return the scenario of a recipe."""
        with running(self.suite, "scenario"):
            return self.explorer.made(recipe)

    def first_wrong(
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
                failing = self.first_wrong(arm, runner, [scenario])
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

    def found(
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
        number, title = recipe.source.number, self.explorer.title(scenario)
        self.on_wrong(arm, number)
        if difference.name != ReasonCode.HUNG:
            runner.renew()
            alone = self.first_wrong(arm, runner, [scenario])
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
            scenario = self.explorer.until(scenario, difference.place)
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
            again = self.first_wrong(arm, runner, [self.made(recipe) for recipe in played])
            needs = () if again is None else tuple(played[: again[0] + 1])
        if needs:
            message += f", and wrong again after {len(needs) - 1} others in one process"
        else:
            message += (
                ", and in a fresh process after the others too: it takes what this process did "
                "before them, or chance"
            )
        number, title = played[-1].source.number, self.explorer.title(scenario)
        told = Reason(code=reason.code, message=message)
        return Found(number, title, told, self._lines_of(scenario), needs)

    def _lines_of(self, scenario: Any) -> tuple[str, ...]:
        """Return a scenario's lines; of many, the first and the last."""
        lines = tuple(self.explorer.lines(scenario))
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
            failing = self.first_wrong(arm, runner, [candidate])
            if failing is None or failing[1].name != difference.name:
                return False
            recipe = replace(recipe, changes=(*recipe.changes, change))
            scenario, difference = candidate, failing[1]
            return True

        def take_until() -> None:
            place = difference.place
            take(Change(Cut.UNTIL, place), self.explorer.until(scenario, place))

        def take_smaller() -> bool:
            for at, candidate in enumerate(self.explorer.smaller(scenario)):
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
        again = self.first_wrong(arm, runner, [scenario])
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
        text = described(name, found.get(name), wanted.get(name))
        return Reason(code=ReasonCode.WRONG_RESULT, message=f"{where}: {text}")
