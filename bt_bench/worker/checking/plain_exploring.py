"""Scenarios for any suite: its conformance workloads, rewound, interleaved, with calls repeated.

Scenarios use only properties that `Driver` guarantees for every suite. Steps come in order until
`rewind`, each through the calls of one path. Other instances may be at other steps meanwhile. A
call may be repeated on its step. Nothing here loads torch.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from bt_bench.base.errors import UsageError
from bt_bench.base.processes import Sealed
from bt_bench.protocol import (
    Explorer,
    Source,
    Suite,
    SuiteRef,
    Workload,
    at_suite,
    check_workload,
    driver_of,
    load_suite,
    place_of,
    ref_of_value,
    running,
    runs_here,
    varied_workload,
)
from bt_bench.worker.checking.plain_scenarios import (
    Action,
    Instance,
    NextStep,
    PlainScenario,
    Rewind,
)

if TYPE_CHECKING:
    from bt_bench.worker.checking.plain_player import PlainPlayer

GARBAGE = -1000  # the simplest scenarios fill outputs with it
_EDGES = (0, -1, 1, 7, 2**31 - 1, -(2**31))  # fills that look like results
_MOST_ACTIONS = {False: 16, True: 96}  # by `Source.deep`
_SHARES = (0.45, 0.35, 0.15, 0.05)  # probabilities of one instance, two, three and four


def explorer_of(suite: Suite) -> Explorer:
    """Return the suite's own explorer, or else the one for any suite.

    If the suite runs in another process, return an explorer that calls that process.
    """
    ref = ref_of_value(suite)
    if not runs_here(ref):
        return HostedExplorer(ref)
    with running(suite, "explorer"):
        return suite.explorer() or PlainExplorer(suite)


class HostedExplorer(Explorer):
    """An explorer that forwards to the suite's process, and passes scenarios on unopened.

    Args:
        ref: the suite.
    """

    def __init__(self, ref: SuiteRef) -> None:
        self._ref = ref

    def scenario(self, source: Source) -> Sealed:
        """See the base class."""
        return at_suite(self._ref, _ask_for_scenario, self._ref, source)

    def title(self, scenario: Any) -> str:
        """See the base class."""
        return at_suite(self._ref, _ask_for_title, self._ref, scenario)

    def is_large(self, scenario: Any) -> bool:
        """See the base class."""
        return at_suite(self._ref, _ask_whether_large, self._ref, scenario)

    def lines(self, scenario: Any) -> Sequence[str]:
        """See the base class."""
        return at_suite(self._ref, _ask_for_lines, self._ref, scenario)

    def smaller(self, scenario: Any) -> Iterator[Sealed]:
        """See the base class."""
        given: Sealed | None = scenario  # `None` continues with the same one
        while (found := at_suite(self._ref, _ask_for_smaller, self._ref, given)) is not None:
            given = None
            yield found

    def until(self, scenario: Any, place: int) -> Sealed:
        """See the base class."""
        return at_suite(self._ref, _ask_until, self._ref, scenario, place)

    def player(self) -> NoReturn:
        """Refuse: a player runs variants' code, which must not run in this process."""
        raise TypeError(f"scenarios of {self._ref.folder} are not played in this process")


def _ask_for_scenario(ref: SuiteRef, source: Source) -> Sealed:
    suite = load_suite(ref)
    with running(suite, "scenario"):
        return _sealed(suite, _explorer_here(ref).scenario(source))


def _ask_for_title(ref: SuiteRef, scenario: Any) -> str:
    with running(load_suite(ref), "title of the explorer"):
        return str(_explorer_here(ref).title(scenario))


def _ask_whether_large(ref: SuiteRef, scenario: Any) -> bool:
    with running(load_suite(ref), "is_large of the explorer"):
        return bool(_explorer_here(ref).is_large(scenario))


def _ask_for_lines(ref: SuiteRef, scenario: Any) -> list[str]:
    with running(load_suite(ref), "lines of the explorer"):
        return list(map(str, _explorer_here(ref).lines(scenario)))


def _ask_until(ref: SuiteRef, scenario: Any, place: int) -> Sealed:
    suite = load_suite(ref)
    with running(suite, "until of the explorer"):
        return _sealed(suite, _explorer_here(ref).until(scenario, place))


_smaller: Iterator[Any] = iter(())


def _ask_for_smaller(ref: SuiteRef, scenario: Any | None) -> Sealed | None:
    """Return the next smaller scenario, or `None` at the end.

    A `scenario` starts a new sequence; `None` continues the last one.
    """
    global _smaller
    suite = load_suite(ref)
    with running(suite, "smaller of the explorer"):
        if scenario is not None:
            _smaller = iter(_explorer_here(ref).smaller(scenario))
        for found in _smaller:
            return _sealed(suite, found)
    return None


@cache
def _explorer_here(ref: SuiteRef) -> Explorer:
    return explorer_of(load_suite(ref))


def _sealed(suite: Suite, scenario: Any) -> Sealed:
    """Pickle a scenario: both processes get the same bytes, and neither has to make it again."""
    return Sealed(_pickled(suite, "a scenario", scenario))


def _pickled(suite: Suite, what: str, value: object) -> bytes:
    """Pickle a value of a suite's own classes for the processes that play scenarios.

    Raises:
        UsageError: if it cannot be pickled.
    """
    try:
        return pickle.dumps(value)
    except Exception as error:  # a suite's class may raise anything
        raise UsageError(
            f"{place_of(suite)}: {what} cannot be pickled, which exploring needs: "
            f"{type(error).__name__}: {error}"
        ) from error


class PlainExplorer(Explorer):
    """An explorer for any suite. See the base class.

    Args:
        suite: the suite; scenarios are made from its conformance workloads.
    """

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._conformance: dict[int, dict[str, Workload]] = {}  # by seed

    def scenario(self, source: Source) -> PlainScenario:
        """See the base class."""
        workloads = self._explorable(source.seed, source.features)
        if not workloads:
            raise UsageError(f"{place_of(self._suite)}: no conformance workload can be explored")
        return _Maker(self._suite, workloads, source).make()

    def abilities(self, variant: type[Any]) -> frozenset[str]:
        """See the base class: a name for each workload that a variant leaves partly undefined."""
        driver = driver_of(self._suite)
        return frozenset(
            _undefined(name)
            for name, workload in self._workloads(0).items()
            if driver.undefined_on(variant, workload) is not None
            or driver.tamed(workload, variant) is not workload
        )

    def unexplored(self, variant: type[Any]) -> str:
        """See the base class."""
        trial = driver_of(self._suite).trial
        if trial is not None and not trial.is_common:
            return "its suite has a trial of its own, and no explorer (docs/suites.md)"
        features = frozenset(getattr(variant, "features", ()))
        if not self._explorable(0, features | self.abilities(variant)):
            return "no conformance workload can be explored with it (docs/suites.md)"
        return ""

    def title(self, scenario: Any) -> str:
        """See the base class."""
        used = {scenario.instances[action.instance].workload for action in scenario.actions}
        return ", ".join(dict.fromkeys(scenario.names[at] for at in sorted(used)))

    def lines(self, scenario: Any) -> Sequence[str]:
        """See the base class."""
        return list(_lines(scenario))

    def smaller(self, scenario: Any) -> Iterator[Any]:
        """See the base class."""
        return filter(is_legal, _candidates(scenario))

    def until(self, scenario: Any, place: int) -> Any:
        """See the base class."""
        return replace(scenario, actions=scenario.actions[: place + 1])

    def player(self) -> PlainPlayer:
        """See the base class."""
        from bt_bench.worker.checking.plain_player import PlainPlayer

        return PlainPlayer(self._suite)

    def _explorable(self, seed: int, features: frozenset[str]) -> Mapping[str, Workload]:
        """Return the workloads for a variant with these features and `abilities`."""
        return {
            name: workload
            for name, workload in self._workloads(seed).items()
            if workload.features <= features and _undefined(name) not in features
        }

    def _workloads(self, seed: int) -> Mapping[str, Workload]:
        """Return the conformance workloads that have a step."""
        if seed not in self._conformance:
            with running(self._suite, "conformance"):
                found = dict(self._suite.conformance(seed))
            for name, workload in found.items():
                check_workload(self._suite, workload)
                # Its contents are sent to both processes.
                _pickled(self._suite, f"the conformance workload {name!r}", workload)
            self._conformance[seed] = {
                name: workload for name, workload in found.items() if len(workload.steps)
            }
        return self._conformance[seed]


def _undefined(name: str) -> str:
    """Return the pseudo-feature of variants that leave part of a workload undefined."""
    return f"undefined on {name}"


class _Maker:
    """A maker of one scenario."""

    def __init__(self, suite: Suite, workloads: Mapping[str, Workload], source: Source) -> None:
        self._suite = suite
        self._workloads = workloads
        self._paths = list(dict.fromkeys(operation.path for operation in suite.operations))
        self._rng = source.rng()
        self._most = _MOST_ACTIONS[source.deep]

    def make(self) -> PlainScenario:
        names = self._names()
        workloads = tuple(
            varied_workload(
                self._suite, self._workloads[name], np.random.default_rng(self._below(2**31))
            )
            for name in names
        )
        instances = self._instances(len(names))
        actions = self._actions([len(workloads[one.workload].steps) for one in instances])
        return PlainScenario(names, workloads, instances, tuple(actions))

    def _names(self) -> tuple[str, ...]:
        """Pick one to three workloads, often one of them again.

        The same workload with other contents exposes results that a variant remembers by size.
        """
        count = 1 + int(self._rng.choice(3, p=(0.5, 0.35, 0.15)))
        known = list(self._workloads)
        found = [self._pick(known)]
        while len(found) < count:
            found.append(self._pick(found if self._below(2) else known))
        return tuple(found)

    def _instances(self, workloads: int) -> tuple[Instance, ...]:
        count = max(workloads, 1 + int(self._rng.choice(len(_SHARES), p=_SHARES)))
        return tuple(
            Instance(
                at if at < workloads else self._below(workloads),
                self._pick(self._paths),
                like=bool(self._below(2)),
                shares=bool(self._below(2)),
            )
            for at in range(count)
        )

    def _actions(self, num_steps: Sequence[int]) -> Iterator[Action]:
        places: dict[int, int] = {}  # the next step of each instance
        spoilt: set[int] = set()  # instances with outputs filled since their last rewind
        current = 0
        for _ in range(2 + self._below(self._most)):
            if self._below(2):
                current = self._below(len(num_steps))
            place = places.get(current, 0)
            if place == num_steps[current] or (place and not self._below(6)):
                places[current] = 0
                spoilt.discard(current)
                yield Rewind(current, self._pick(self._paths))
                continue
            places[current] = place + 1
            fill = self._fill() if self._below(8) or current not in spoilt else None
            spoilt.add(current)
            again = 1 + self._below(2) if not self._below(4) else 0
            yield NextStep(current, fill, again)

    def _fill(self) -> int:
        return self._pick(_EDGES) if self._below(2) else -self._below(2**31) - 1

    def _below(self, count: int) -> int:
        return int(self._rng.integers(count))

    def _pick(self, some: Sequence[Any]) -> Any:
        return some[self._below(len(some))]


def is_legal(scenario: PlainScenario) -> bool:
    """Return whether no instance goes past its last step, and outputs are filled where needed.

    The outputs must be filled at an instance's first step, and at the first after a rewind.
    """
    places: dict[int, int] = {}
    for action in scenario.actions:
        workload = scenario.workloads[scenario.instances[action.instance].workload]
        place = places.get(action.instance, 0)
        if isinstance(action, Rewind):
            places[action.instance] = 0
            continue
        # Contents of outputs are undefined at first and after a rewind.
        if place == len(workload.steps) or (place == 0 and action.fill is None):
            return False
        places[action.instance] = place + 1
    return bool(scenario.actions)


def _candidates(scenario: PlainScenario) -> Iterator[PlainScenario]:
    actions = scenario.actions
    for instance in sorted({action.instance for action in actions}):
        rest = tuple(action for action in actions if action.instance != instance)
        yield replace(scenario, actions=rest)
    size = len(actions)
    while size > 1:
        size = (size + 1) // 2
        for start in range(0, len(actions), size):
            yield replace(scenario, actions=actions[:start] + actions[start + size :])
    for at, one in enumerate(scenario.instances):
        for simpler in _simpler_instances(one):
            instances = (*scenario.instances[:at], simpler, *scenario.instances[at + 1 :])
            yield replace(scenario, instances=instances)
    for at, action in enumerate(actions):
        for step in _simpler_steps(action):
            yield replace(scenario, actions=(*actions[:at], step, *actions[at + 1 :]))


def _simpler_instances(one: Instance) -> Iterator[Instance]:
    if one.like:
        yield replace(one, like=False)
    if one.shares:
        yield replace(one, shares=False)


def _simpler_steps(action: Action) -> Iterator[NextStep]:
    if not isinstance(action, NextStep):
        return
    for fewer in range(action.again):
        yield replace(action, again=fewer)
    if action.fill != GARBAGE:
        yield replace(action, fill=GARBAGE)


def _lines(scenario: PlainScenario) -> Iterator[str]:
    """Yield lines that describe the used instances, and then their actions."""
    used = sorted({action.instance for action in scenario.actions})
    contents = sorted({scenario.instances[at].workload for at in used})
    paths = {at: scenario.instances[at].path for at in used}
    places = dict.fromkeys(used, 0)
    for at in used:
        one = scenario.instances[at]
        notes = [scenario.names[one.workload]]
        if len(contents) > 1:
            notes.append(f"contents {contents.index(one.workload)}")
        if len(used) > 1:
            notes += ["set up by like()"] * one.like + ["with shared inputs"] * one.shares
        yield f"{_name(scenario, at)}workload {', '.join(notes)}"
    for action in scenario.actions:
        at = action.instance
        if isinstance(action, Rewind):
            paths[at], places[at] = action.path, 0
            yield f"{_name(scenario, at)}rewind"
            continue
        told = f"step {places[at]}, {'+'.join(paths[at])}"
        if action.again:
            told += f", {action.again} more time{'s' * (action.again != 1)}"
        kept = "outputs as they were" if action.fill is None else f"filled by {action.fill} before"
        yield f"{_name(scenario, at)}{told}  ({kept})"
        places[at] += 1


def _name(scenario: PlainScenario, instance: int) -> str:
    """Return the prefix of an instance's lines; empty if the scenario has only one."""
    return f"instance {instance}: " if len(scenario.instances) > 1 else ""
