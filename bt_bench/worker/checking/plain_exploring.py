"""Scenarios of any suite: its conformance workloads, begun anew, interleaved, with calls repeated.

What a scenario may do is what `Driver` promises of every suite: steps come in order, each through
the calls of one path, until `rewind`; another instance may be at another step meanwhile; and a call
may be made again on its step. Nothing here loads torch.
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
from bt_bench.worker.checking.plain_scenarios import Action, Instance, Rewind, Scenario, Step

if TYPE_CHECKING:
    from bt_bench.worker.checking.plain_player import PlainPlayer

GARBAGE = -1000  # what the simplest scenarios fill outputs with
_EDGES = (0, -1, 1, 7, 2**31 - 1, -(2**31))  # where nothing was written, these look like results
_MOST_ACTIONS = {False: 16, True: 96}  # by whether the scenario is a deep one
_SHARES = (0.45, 0.35, 0.15, 0.05)  # of scenarios with one workload or instance, two, and so on


def explorer_of(suite: Suite) -> Explorer:
    """The suite's own explorer, or else the one that serves any suite."""
    ref = ref_of_value(suite)
    if not runs_here(ref):
        return HostedExplorer(ref)
    with running(suite, "explorer"):
        return suite.explorer() or PlainExplorer(suite)


class HostedExplorer(Explorer):
    """Makes scenarios where the suite runs, and passes them on without a look at them.

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
        given: Sealed | None = scenario  # and from there on
        while (found := at_suite(self._ref, _ask_for_smaller, self._ref, given)) is not None:
            given = None
            yield found

    def until(self, scenario: Any, place: int) -> Sealed:
        """See the base class."""
        return at_suite(self._ref, _ask_until, self._ref, scenario, place)

    def player(self) -> NoReturn:
        """Refuse: a player runs code of variants."""
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
    """The next smaller scenario: of another one than before, if one is given."""
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
    """A scenario as both processes are sent it, so that they need not make the same one."""
    try:
        return Sealed(pickle.dumps(scenario))
    except Exception as error:  # whatever a class of the suite raises
        raise UsageError(
            f"{place_of(suite)}: a scenario cannot be pickled, which exploring needs: "
            f"{type(error).__name__}: {error}"
        ) from error


class PlainExplorer(Explorer):
    """See the base class.

    Args:
        suite: whose conformance workloads the scenarios are made of.
    """

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._conformance: dict[int, dict[str, Workload]] = {}  # by seed

    def scenario(self, source: Source) -> Scenario:
        """See the base class."""
        workloads = {
            name: workload
            for name, workload in self._workloads(source.seed).items()
            if workload.features <= source.features and _undefined(name) not in source.features
        }
        if not workloads:
            raise UsageError(f"{place_of(self._suite)}: no conformance workload can be explored")
        return _Maker(self._suite, workloads, source).make()

    def abilities(self, variant: type[Any]) -> frozenset[str]:
        """See the base class: here the workloads of which a variant leaves a part undefined."""
        driver = driver_of(self._suite)
        return frozenset(
            _undefined(name)
            for name, workload in self._workloads(0).items()
            if driver.undefined_on(variant, workload) is not None
            or driver.tamed(workload, variant) is not workload
        )

    def unexplored(self, variant: type[Any]) -> str:
        """See the base class."""
        if driver_of(self._suite).trial is not None:
            return "its suite has a trial of its own, and no explorer (docs/suites.md)"
        features = frozenset(getattr(variant, "features", ()))
        undefined = self.abilities(variant)
        if not any(
            workload.features <= features and _undefined(name) not in undefined
            for name, workload in self._workloads(0).items()
        ):
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
        for candidate in _candidates(scenario):
            if is_legal(candidate):
                yield candidate

    def until(self, scenario: Any, place: int) -> Any:
        """See the base class."""
        return replace(scenario, actions=scenario.actions[: place + 1])

    def player(self) -> PlainPlayer:
        """See the base class."""
        from bt_bench.worker.checking.plain_player import PlainPlayer

        return PlainPlayer(self._suite)

    def _workloads(self, seed: int) -> Mapping[str, Workload]:
        """The conformance workloads that have a step."""
        if seed not in self._conformance:
            with running(self._suite, "conformance"):
                found = dict(self._suite.conformance(seed))
            for name, workload in found.items():
                check_workload(self._suite, workload)
                self._check_pickles(name, workload)
            self._conformance[seed] = {
                name: workload for name, workload in found.items() if len(workload.steps)
            }
        return self._conformance[seed]

    def _check_pickles(self, name: str, workload: Workload) -> None:
        """Both processes are sent the contents, so that they need not make the same ones."""
        try:
            pickle.dumps(workload)
        except Exception as error:  # whatever a class of the suite raises
            raise UsageError(
                f"{place_of(self._suite)}: the conformance workload {name!r} cannot be pickled, "
                f"which exploring needs: {type(error).__name__}: {error}"
            ) from error


def _undefined(name: str) -> str:
    """Stands among the features of a variant that leaves something on a workload undefined."""
    return f"undefined on {name}"


class _Maker:
    """Makes one scenario."""

    def __init__(self, suite: Suite, workloads: Mapping[str, Workload], source: Source) -> None:
        self._workloads = workloads
        self._paths = list(dict.fromkeys(operation.path for operation in suite.operations))
        self._rng = source.rng()
        self._most = _MOST_ACTIONS[source.deep]

    def make(self) -> Scenario:
        names = self._names()
        workloads = tuple(
            varied_workload(self._workloads[name], np.random.default_rng(self._below(2**31)))
            for name in names
        )
        instances = self._instances(len(names))
        actions = self._actions([len(workloads[one.workload].steps) for one in instances])
        return Scenario(names, workloads, instances, tuple(actions))

    def _names(self) -> tuple[str, ...]:
        """Often the same one with other contents: what is remembered by sizes is wrong then."""
        count = 1 + int(self._rng.choice(3, p=(0.5, 0.35, 0.15)))
        found = [self._pick(list(self._workloads))]
        while len(found) < count:
            others = found if self._below(2) else list(self._workloads)
            found.append(self._pick(others))
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
        places: dict[int, int] = {}  # of the next step of each instance
        spoilt: set[int] = set()  # whose outputs have been filled, and not rewound since
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
            yield Step(current, fill, again)

    def _fill(self) -> int:
        return self._pick(_EDGES) if self._below(2) else -self._below(2**31) - 1

    def _below(self, count: int) -> int:
        return int(self._rng.integers(count))

    def _pick(self, some: Sequence[Any]) -> Any:
        return some[self._below(len(some))]


def is_legal(scenario: Scenario) -> bool:
    """Whether no instance goes past its last step, and outputs are filled where they must be."""
    places: dict[int, int] = {}
    for action in scenario.actions:
        workload = scenario.workloads[scenario.instances[action.instance].workload]
        place = places.get(action.instance, 0)
        if isinstance(action, Rewind):
            places[action.instance] = 0
            continue
        # What outputs hold at first and after a rewind is nobody's business.
        if place == len(workload.steps) or (place == 0 and action.fill is None):
            return False
        places[action.instance] = place + 1
    return bool(scenario.actions)


def _candidates(scenario: Scenario) -> Iterator[Scenario]:
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


def _simpler_steps(action: Action) -> Iterator[Step]:
    if not isinstance(action, Step):
        return
    if action.again:
        yield replace(action, again=0)
        if action.again > 1:
            yield replace(action, again=1)
    if action.fill != GARBAGE:
        yield replace(action, fill=GARBAGE)


def _lines(scenario: Scenario) -> Iterator[str]:
    """Instances that are used, and then what they do."""
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


def _name(scenario: Scenario, instance: int) -> str:
    """What lines, and names of contents, of an instance begin with."""
    return f"instance {instance}: " if len(scenario.instances) > 1 else ""
