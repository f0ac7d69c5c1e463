"""Functions that run right after modules are imported, whenever that is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeAlias

from bt_kernels.engines.plugin.messages import describe, warn_once

Action: TypeAlias = Callable[[ModuleType], None]


class _Finder(MetaPathFinder):
    """Finds the named modules as the other finders do, with loaders that act after the import."""

    def __init__(self, actions: Mapping[str, Action]) -> None:
        self.actions = actions

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        action = self.actions.get(fullname)
        if action is None:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, action)
                return spec
        return None


class _Loader(Loader):
    """Loads a module by its own loader, restores that one as the module's, and acts."""

    def __init__(self, loader: Any, action: Action) -> None:
        self._loader, self._action = loader, action

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        act(self._action, module)


def act(action: Action, module: ModuleType) -> None:
    """Run an action on a module; if it fails, warn, since the import must go on."""
    try:
        action(module)
    except Exception as error:
        warn_once(f"{module.__name__} was not changed: {describe(error)}")


def is_installed() -> bool:
    """Return whether this process has actions after imports."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def install(actions: Mapping[str, Action]) -> None:
    """Have actions run after the import of modules, by name; now for those that are imported."""
    sys.meta_path.insert(0, _Finder(actions))
    for name, action in actions.items():
        module = sys.modules.get(name)
        # One that is being imported right now has its action missed; both are imported by others.
        if module is not None:
            act(action, module)


def uninstall() -> None:
    """Take the actions out."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
