"""Holds the process of one revision to its own tree; see `bt_bench.isolation`.

Whatever leads to the user's checkout is led to the same place of the own tree: the path of modules,
finders of editable installs, the working directory. What comes from another tree all the same is
found, and the gate refuses to judge: of the modules that are loaded, the libraries that are mapped,
and, in a process that is not timed, of every file that a variant opens.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourcelessFileLoader,
)
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

from bt_bench import activity
from bt_bench.errors import UsageError
from bt_bench.isolation import FreshSourceLoader, Isolation

_SHOWN = 3
_MAPS = Path("/proc/self/maps")
# What these events are about is their first argument: a path, or what a process is given.
_AUDITED = frozenset({"open", "ctypes.dlopen", "os.listdir", "os.scandir", "subprocess.Popen"})
# Of the harness, and in each process that of the one tool; `bt_kernels` has a tree of its own.
_OF_THE_TOOL = frozenset({"bt_bench", "bt_kernels", "__mp_main__", "__main__"})


class Fence:
    """Leads a process to its own tree, and knows what it has used of others.

    Args:
        isolation: what the process may use.
    """

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self._found: dict[str, None] = {}
        self._searching = False

    def put_up(self) -> None:
        """Leads everything to the own tree; of the harness all is imported before, for good.

        Raises:
            UsageError: for a module of another tree that is loaded already.
        """
        isolation = self._isolation
        self._lead_path()
        os.environ["TORCH_EXTENSIONS_DIR"] = str(isolation.caches / "torch_extensions")
        here = isolation.mapped(str(Path.cwd().resolve()))
        if here is not None:
            os.chdir(here if here.is_dir() else isolation.own)
        # Functions of a variant may import later: then, too, from the variant's own tree.
        for name in [name for name in sys.modules if name.partition(".")[0] == "bt_kernels"]:
            del sys.modules[name]
        sys.path_hooks.insert(0, self._hook)
        sys.path_importer_cache.clear()
        importlib.invalidate_caches()
        sys.meta_path.insert(0, _Leading(self))
        if isolation.audited:
            sys.addaudithook(self._audit)
        self.refuse()

    def refuse(self) -> None:
        """Ends what is done where another tree has been used.

        Raises:
            UsageError: with the files, and what may have led there.
        """
        self._look_at_modules()
        self._look_at_libraries()
        if self._found:
            found = list(self._found)
            more = len(found) - _SHOWN
            raise UsageError(
                f"{self._isolation.label} does not run on its own files: "
                + "; ".join(found[:_SHOWN])
                + (f"; and {more} more" if more > 0 else "")
                + ". A gate compares nothing where one revision uses files of the other: make "
                "symlinks relative, and take paths from __file__ rather than from the environment"
            )

    def lead(self, name: str, spec: ModuleSpec) -> ModuleSpec | None:
        """What stands in the own tree for a module that was found in another.

        Returns:
            `None` for a module that may be loaded as it was found.

        Raises:
            ModuleNotFoundError: where the own tree has no such file.
        """
        isolation = self._isolation
        places = list(spec.submodule_search_locations or ())
        if spec.has_location and spec.origin is not None:
            places.insert(0, spec.origin)
        if not places:
            return None
        first = _real(places[0])
        mapped = isolation.mapped(first)
        if mapped is None:
            if "." not in name and name in _installed_from(isolation):
                self._found[
                    f"module {name} is installed from the repository (pip install), so that both "
                    "revisions would run that copy; install it with --editable"
                ] = None
            return None
        if not mapped.exists():
            raise ModuleNotFoundError(
                f"No module named {name!r}: {isolation.owner_of(first)} has {first}, "
                f"{isolation.label} does not",
                name=name,
            )
        if not spec.has_location:  # a namespace package
            led = ModuleSpec(name, None, is_package=True)
            led.submodule_search_locations = [str(mapped)]
            return led
        loader: FreshSourceLoader | ExtensionFileLoader
        if mapped.name.endswith(tuple(EXTENSION_SUFFIXES)):
            loader = ExtensionFileLoader(name, str(mapped))
        else:
            loader = FreshSourceLoader(name, str(mapped))
        within = [str(mapped.parent)] if spec.submodule_search_locations is not None else None
        return importlib.util.spec_from_file_location(
            name, mapped, loader=loader, submodule_search_locations=within
        )

    @contextmanager
    def searching(self) -> Iterator[bool]:
        """For one search at a time; `False` within another, or where no variant runs."""
        free = not self._searching and activity.current().place is not None
        before, self._searching = self._searching, True
        try:
            yield free
        finally:
            self._searching = before

    def _lead_path(self) -> None:
        sys.path[:] = [self._led(entry) for entry in sys.path]
        if os.environ.get("PYTHONPATH"):  # for what a variant starts
            entries = os.environ["PYTHONPATH"].split(os.pathsep)
            os.environ["PYTHONPATH"] = os.pathsep.join(map(self._led, entries))

    def _led(self, entry: str) -> str:
        mapped = self._isolation.mapped(_real(entry))
        return entry if mapped is None else str(mapped)

    def _hook(self, folder: str) -> FileFinder:
        """Finds modules of the own tree without cached bytecode."""
        real = _real(folder)
        if not Path(real).is_dir() or not self._isolation.is_own(real):
            raise ImportError("not in the own tree", path=folder)
        return FileFinder(
            folder,
            (ExtensionFileLoader, EXTENSION_SUFFIXES),
            (FreshSourceLoader, SOURCE_SUFFIXES),
            (SourcelessFileLoader, BYTECODE_SUFFIXES),
        )

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        """A hook of `sys.addaudithook`; an exception here would be one of the variant."""
        if event not in _AUDITED or activity.current().place is None or self._searching:
            return
        with suppress(Exception):
            what: object = arguments[0]
            if event == "subprocess.Popen":
                for word in [arguments[0], *_listed(arguments[1])]:
                    self._note("starts a program with", word)
            else:
                self._note("opens", what)

    def _note(self, verb: str, what: object) -> None:
        if not isinstance(what, str | bytes | os.PathLike):
            return
        path = _real(os.fsdecode(what))
        owner = self._isolation.owner_of(path)
        if owner is not None:
            self._found[f"a variant {verb} {path}, which is a file of {owner}"] = None

    def _look_at_modules(self) -> None:
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in _OF_THE_TOOL:
                continue
            file = getattr(module, "__file__", None)
            owner = self._isolation.owner_of(_real(file)) if isinstance(file, str) else None
            if owner is not None:
                self._found[f"module {name} is {file}, a file of {owner}"] = None

    def _look_at_libraries(self) -> None:
        """Libraries that are mapped, whoever has loaded them: a finder sees none of these."""
        with suppress(OSError):
            for line in _MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
                parts = line.split(maxsplit=5)
                if len(parts) < 6 or not parts[5].startswith("/"):
                    continue
                owner = self._isolation.owner_of(parts[5])
                if owner is not None:
                    self._found[f"{parts[5]} is loaded, a file of {owner}"] = None


class _Leading(MetaPathFinder):
    """Has all other finders search, and leads what they find to the own tree."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module of the own tree in place of one of another; else leaves it to the others."""
        with self._fence.searching() as free:
            if not free:
                return None
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                if finder is self or find is None:
                    continue
                spec = find(fullname, path, target)
                if spec is not None:
                    return self._fence.lead(fullname, spec)
        return None


def _listed(words: object) -> list[object]:
    return list(words) if isinstance(words, list | tuple) else [words]


def _real(path: str) -> str:
    """A path without symlinks; an empty one is the working directory, as in `sys.path`."""
    return _resolved(str(Path.cwd() / path))


@lru_cache(maxsize=65536)
def _resolved(path: str) -> str:
    return str(Path(path).resolve())


@lru_cache
def _installed_from(isolation: Isolation) -> frozenset[str]:
    """Top-level modules of what pip has copied from the repository to where packages are."""
    names: set[str] = set()
    for distribution in metadata.distributions():
        with suppress(Exception):  # what is broken there is none of ours
            text = distribution.read_text("direct_url.json")
            origin = json.loads(text) if text else {}
            url = urlsplit(origin.get("url", ""))
            if url.scheme != "file" or origin.get("dir_info", {}).get("editable"):
                continue
            if Path(unquote(url.path)).resolve().is_relative_to(isolation.repository):
                files = distribution.files or []
                names |= {file.parts[0].removesuffix(".py") for file in files}
    return frozenset(names - _OF_THE_TOOL)
