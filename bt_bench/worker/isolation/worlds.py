"""Several revisions in one process, each with modules, paths and caches of its own.

Pairs of samples from one process are worth far more than pairs from two
(`docs/gate-statistics.md`). Two trees in one process, however, lead to each other: by module names,
the module path, the environment and the working directory. Each side therefore has a world of its
own. It is in place while code of the side's arms runs, and is removed before another side's code
runs. All sides share installed packages and the state of torch, Triton and Python;
`bt_bench.worker.isolation.global_state` detects changes to that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from bt_bench.variants import Isolation
from bt_bench.worker.isolation.fence import Fence, mapped_files


@dataclass
class _Place:
    """Process state that leads to a tree: module path, environment, folder, bytecode cache."""

    path: list[str]
    environment: dict[str, str]
    folder: str
    bytecode: str | None

    @classmethod
    def now(cls) -> _Place:
        """Return the current state."""
        return cls(list(sys.path), dict(os.environ), str(Path.cwd()), sys.pycache_prefix)

    def put(self, names: Collection[str]) -> None:
        """Restore the process to this state.

        Everything is set, even if it is right already: arms of a side that needed less work before
        them would be faster, by 5 % on an H200's host.

        Args:
            names: names of environment variables that differ between places.
        """
        sys.path[:] = self.path
        for name in names:
            value = self.environment.get(name)
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        os.chdir(self.folder)
        sys.pycache_prefix = self.bytecode


@dataclass
class _World:
    fence: Fence
    place: _Place
    modules: dict[str, ModuleType] = field(default_factory=dict)  # its modules while not in place


class Worlds:
    """The worlds of a process; with a single side, its world is always in place.

    Args:
        sides: the files that each side may use, by side.
        side_of: the side of each arm, by arm.

    Attributes:
        environment: names of environment variables that have different values for the sides.
    """

    def __init__(self, sides: Mapping[str, Isolation], side_of: Mapping[str, str]) -> None:
        self._isolations = dict(sides)
        self._side_of = dict(side_of)
        self._worlds: dict[str, _World] = {}
        self._now: _World | None = None
        self._libraries: set[str] = set()
        self._common_modules: set[str] = set()
        self._loaded = 0  # number of modules when the last world was put in place
        self.environment: frozenset[str] = frozenset()

    def put_up(self) -> None:
        """Make the worlds; the harness itself must be imported before.

        Raises:
            UsageError: for a module of another tree that is loaded already.
        """
        common = _Place.now()
        for side, isolation in self._isolations.items():
            fence = Fence(isolation)
            fence.put_up()
            world = _World(fence, _Place.now())
            self._worlds[side] = world
            if len(self._isolations) == 1:
                self._now = world
            else:
                fence.is_up = False
                common.put(common.environment.keys() | world.place.environment.keys())
        places = [common, *(world.place for world in self._worlds.values())]
        names = {name for place in places for name in place.environment}
        self.environment = frozenset(
            name for name in names if len({place.environment.get(name) for place in places}) > 1
        )
        self._libraries = mapped_files()
        self._common_modules = set(sys.modules)
        self._loaded = len(sys.modules)

    def enter(self, arm: str) -> None:
        """Put an arm's world in place; to be called before any of its code runs."""
        world = self._worlds.get(self._side_of.get(arm, ""))
        if world is None or len(self._worlds) == 1:
            return
        if self._now is not None:
            before = self._now
            before.fence.is_up = False
            # pathlib would take ten times as long, twice for each sample.
            before.place.path, before.place.folder = list(sys.path), os.getcwd()  # noqa: PTH109
            if len(sys.modules) != self._loaded:
                self._divide(before)
            for name in before.fence.names:
                module = sys.modules.pop(name, None)
                if module is not None:
                    before.modules[name] = module
        world.place.put(self.environment)
        sys.modules.update(world.modules)
        world.fence.is_up = True
        self._now = world
        self._loaded = len(sys.modules)

    def _divide(self, world: _World) -> None:
        """Assign new entries of `sys.modules` to a side, except packages installed for all."""
        for name in set(sys.modules) - self._common_modules - world.fence.names:
            module, package = sys.modules[name], name.partition(".")[0]
            by_hand = getattr(module, "__file__", None) is None and (
                getattr(module, "__spec__", None) is None
            )
            if world.fence.owns(module) or (by_hand and package not in self._common_modules):
                world.fence.names.add(name)
            else:
                self._common_modules.add(name)

    def refuse(self, arm: str | None = None) -> None:
        """Raise if a side has used another side's tree.

        Args:
            arm: the only arm whose code has run since the last call; `None`: several may have run.
                With several sides, mapped libraries are checked only if `arm` is given.

        Raises:
            UsageError: names the files and how they came to be used.
        """
        sides = dict.fromkeys(self._side_of.values()) if arm is None else [self._side_of[arm]]
        alone = arm is not None or len(self._worlds) == 1
        for side in sides:
            world = self._worlds[side]
            self.enter(next(name for name, of in self._side_of.items() if of == side))
            world.fence.refuse(mapped_files() - self._libraries if alone else ())
        if len(self._worlds) > 1:
            self._libraries = mapped_files()
