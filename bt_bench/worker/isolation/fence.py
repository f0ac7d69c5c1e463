"""A fence that keeps a revision's process to its own tree; see `bt_bench.variants.isolation`.

Paths that lead to the user's checkout are redirected to the same place in the process's own tree:
the module path, finders of editable installs, and the working directory. If a file of another tree
is used all the same, the gate refuses to judge. To detect that, the fence inspects loaded modules,
mapped libraries and, in processes that are not timed, every file that a variant opens.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
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
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

from bt_bench.base.errors import UsageError
from bt_bench.protocol import FreshSourceLoader
from bt_bench.variants import Isolation, is_there, modules_of, real_path
from bt_bench.worker.machine import activity

_SHOWN = 3
_MAPS = Path("/proc/self/maps")
# Audit events whose first arguments are a program, its arguments, and its working directory.
_STARTING = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"})
_LINKING = frozenset({"os.link", "os.symlink", "os.rename"})  # two paths
_AUDITED = _STARTING | _LINKING | {"open", "ctypes.dlopen", "os.listdir", "os.scandir"}
_AUDITED |= {"sqlite3.connect"}
# bt-bench itself, the same in all processes.
_OF_THE_TOOL = frozenset({"bt_bench", "__mp_main__", "__main__"})
_LED_LOADERS = (SourceFileLoader, FreshSourceLoader, ExtensionFileLoader)


class Fence:
    """A redirection of a process to its own tree, with a record of files used of other trees.

    Args:
        isolation: the files that the process may use.

    Attributes:
        names: names of modules loaded for this side; another side may have the same names.
        is_up: whether imports are redirected.
    """

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self._found: dict[str, None] = {}
        self._searching = False
        self.names: set[str] = set()
        self.is_up = True
        self._thread = threading.get_ident()

    def put_up(self) -> None:
        """Redirect everything to the own tree; the harness itself must be imported before.

        Raises:
            UsageError: for a module of another tree that is loaded already.
        """
        isolation = self._isolation
        self._lead_path()
        os.environ.update(isolation.environment(os.environ))
        # Modules of the own tree are recompiled; the prefix is for code that chooses its loader.
        sys.pycache_prefix = str(isolation.caches / "bytecode")
        here = isolation.mapped(_real(""))
        if here is not None:
            os.chdir(here if here.is_dir() else isolation.own)
        # A variant's functions may import later, too, and must then find the variant's own tree.
        for name in modules_of(isolation.package):
            del sys.modules[name]
        sys.path_hooks.insert(0, self._hook)
        sys.path_importer_cache.clear()
        importlib.invalidate_caches()
        sys.meta_path.insert(0, _Leading(self))
        if isolation.audited:
            sys.addaudithook(self._audit)
        self.refuse()

    def refuse(self, libraries: Collection[str] | None = None) -> None:
        """Raise if the process has used another tree.

        Args:
            libraries: files that this side has mapped; `None`: all files that the process has.

        Raises:
            UsageError: names the files and how they came to be used.
        """
        self._look_at_modules()
        # Mapped libraries include those that no finder has seen.
        for file in sorted(mapped_files() if libraries is None else libraries):
            owner = self._isolation.owner_of(file)
            if owner is not None:
                self._found[f"library {file} is loaded, a file of {owner}"] = None
        if self._found:
            found = list(self._found)
            more = len(found) - _SHOWN
            raise UsageError(
                f"{self._isolation.label} does not run on its own files: "
                + "; ".join(found[:_SHOWN])
                + (f"; and {more} more" if more > 0 else "")
                + ". A gate compares nothing where a revision uses files of another place: make "
                "symlinks relative, and take paths from __file__ rather than from the environment"
            )

    def lead(self, name: str, spec: ModuleSpec) -> ModuleSpec | None:
        """Redirect a module that was found in another tree to its counterpart in the own tree.

        Args:
            name: the module's full name.
            spec: the spec that a finder returned.

        Returns:
            The counterpart's spec; `None` for a module that may be loaded as found.

        Raises:
            ModuleNotFoundError: if the own tree has no such file.
        """
        isolation = self._isolation
        places = list(spec.submodule_search_locations or ())
        if not spec.has_location:  # perhaps a namespace package
            mapped_places = [isolation.mapped(_real(place)) for place in places]
            if not any(mapped_places):
                return None
            led = ModuleSpec(name, None, is_package=True)
            led.submodule_search_locations = [
                str(mapped or place)
                for place, mapped in zip(places, mapped_places, strict=True)
                if mapped is None or mapped.is_dir()
            ]
            return led
        if spec.origin is None:
            return None
        first = _real(spec.origin)
        mapped = isolation.mapped(first)
        if mapped is None:
            return None
        if type(spec.loader) not in _LED_LOADERS:
            hook = type(spec.loader).__name__
            self._found[f"module {name} is {first}, loaded by an import hook ({hook})"] = None
            return None
        if not is_there(mapped):
            raise ModuleNotFoundError(
                f"No module named {name!r}: {isolation.owner_of(first)} has {first}, "
                f"but {isolation.label} does not; if it is built, give --build",
                name=name,
            )
        is_compiled = mapped.name.endswith(tuple(EXTENSION_SUFFIXES))
        loader_of = ExtensionFileLoader if is_compiled else FreshSourceLoader
        within = [str(mapped.parent)] if spec.submodule_search_locations is not None else None
        loader = loader_of(name, str(mapped))
        return importlib.util.spec_from_file_location(
            name, mapped, loader=loader, submodule_search_locations=within
        )

    @contextmanager
    def searching(self) -> Iterator[bool]:
        """Yield whether to redirect a search: not if it is nested, or no variant runs."""
        free = not self._searching and activity.current().place is not None
        before, self._searching = self._searching, True
        try:
            yield free
        finally:
            self._searching = before

    def _lead_path(self) -> None:
        isolation = self._isolation
        led = [place for entry in sys.path for place in self._led(entry)]
        sys.path[:] = [*map(str, isolation.path), *led]
        # If a variant starts an interpreter, path files and finders of editable installs lead it
        # to the checkout again. PYTHONPATH takes precedence over them.
        ours = [entry for entry in led if isolation.is_own(_real(entry))]
        for module in list(sys.modules.values()):
            if module.__name__.startswith("__editable__"):
                places = getattr(module, "MAPPING", {}).values()
                mapped = (isolation.mapped(_real(place)) for place in places)
                ours += [str(place.parent) for place in mapped if place is not None]
        if ours:
            before = filter(None, [os.environ.get("PYTHONPATH")])
            os.environ["PYTHONPATH"] = os.pathsep.join([*dict.fromkeys(ours), *before])

    def _led(self, entry: str) -> list[str]:
        """Redirect an entry of the module path to the own tree, even if the place does not exist.

        An installed folder that also holds tracked sources becomes two entries: its counterpart in
        the own tree, then itself.
        """
        real = _real(entry)
        mapped, beside = self._isolation.mapped(real), self._isolation.beside(real)
        if beside is not None:
            return [str(beside), entry]
        return [entry if mapped is None else str(mapped)]

    def _hook(self, folder: str) -> FileFinder:
        """Return a finder for a folder of the own tree that ignores cached bytecode.

        Raises:
            ImportError: for any other folder; `sys.path_hooks` then tries the next hook.
        """
        real = _real(folder)
        # `Path.is_dir` raises for names that are too long, which would break all imports.
        if not self._isolation.is_own(real) or not os.path.isdir(real):  # noqa: PTH112
            raise ImportError("not in the own tree", path=folder)
        return FileFinder(
            folder,
            (ExtensionFileLoader, EXTENSION_SUFFIXES),
            (FreshSourceLoader, SOURCE_SUFFIXES),
            (SourcelessFileLoader, BYTECODE_SUFFIXES),
        )

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        """Record files of other trees, as a hook for `sys.addaudithook`.

        Exceptions are suppressed: they would be raised in the variant's code.
        """
        if event not in _AUDITED or self._searching or self._is_of_the_tool():
            return
        with suppress(Exception):
            if event in _STARTING:
                words = [word for each in arguments[:3] for word in _listed(each)]
                program = shutil.which(str(words[0])) if words else None
                for word in (program, *words):
                    self._note_word(word)
            else:
                for what in arguments[:2] if event in _LINKING else arguments[:1]:
                    self._note("opens", what)

    def _is_of_the_tool(self) -> bool:
        """Return whether only bt-bench runs; in a thread not its own, a variant always may."""
        return activity.current().place is None and threading.get_ident() == self._thread

    def _note_word(self, word: object) -> None:
        """Record paths of other trees anywhere in a word of a command line."""
        if not isinstance(word, str | bytes | os.PathLike):
            return
        text = os.fsdecode(word)
        if "/" in text:
            self._note("starts a program with", text)
        for label, top in self._isolation.others:
            for part in text.split(str(top))[1:]:
                path = str(top) + re.split(r"[\s'\":;,]", part)[0]
                if self._isolation.owner_of(_real(path)) == label:
                    self._found[f"a variant starts a program with {path}, of {label}"] = None

    def _note(self, verb: str, what: object) -> None:
        if not isinstance(what, str | bytes | os.PathLike):
            return
        path = _real(os.fsdecode(what))
        owner = self._isolation.owner_of(path)
        if owner is not None:
            self._found[f"a variant {verb} {path}, which is a file of {owner}"] = None

    def _look_at_modules(self) -> None:
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name.partition(".")[0] in _OF_THE_TOOL or not isinstance(file, str):
                continue
            real = _real(file)
            owner = self._isolation.owner_of(real)
            if owner is not None:
                self._found[f"module {name} is {file}, a file of {owner}"] = None
            elif self._isolation.is_own(real):
                self.names.add(name)
            elif "." not in name and self._is_a_copy(name, file):
                self._found[
                    f"module {name} is {file}, a copy installed from the repository, so both "
                    "revisions run it; install it with pip's --editable"
                ] = None

    def _is_a_copy(self, name: str, file: str) -> bool:
        """Return whether an installed module is a copy of the repository's, by origin or name."""
        isolation = self._isolation
        if "-packages" not in file:
            return False
        if name in _installed_from(isolation):
            return True
        tops = (isolation.own, isolation.own / "src")
        return any(
            (t / name / "__init__.py").is_file() or (t / f"{name}.py").is_file() for t in tops
        )

    def owns(self, module: ModuleType) -> bool:
        """Return whether a module is a file of the own tree."""
        file = getattr(module, "__file__", None)
        return isinstance(file, str) and self._isolation.is_own(_real(file))

    def keep(self, name: str, spec: ModuleSpec) -> None:
        """Record the name of a module of the own tree; no other side may find it by that name."""
        places = [spec.origin] if spec.has_location else spec.submodule_search_locations or ()
        if any(place and self._isolation.is_own(_real(place)) for place in places):
            self.names.add(name)


class _Leading(MetaPathFinder):
    """A finder that lets all others search, and redirects their results to the own tree."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Redirect a module of another tree; leave any other module to the other finders."""
        with self._fence.searching() as free:
            if not (free and self._fence.is_up):
                return None
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                if finder is self or find is None:
                    continue
                spec = find(fullname, path, target)
                if spec is not None:
                    led = self._fence.lead(fullname, spec)
                    self._fence.keep(fullname, led or spec)
                    return led
        return None


def mapped_files() -> set[str]:
    """Return the files mapped into this process; none if `/proc/self/maps` cannot be read."""
    try:
        lines = _MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return set()
    parts = [line.split(maxsplit=5) for line in lines]
    return {each[5] for each in parts if len(each) == 6 and each[5].startswith("/")}


def _listed(words: object) -> list[object]:
    return list(words) if isinstance(words, list | tuple) else [words]


def _real(path: str) -> str:
    """Resolve symlinks in a path; an empty one is the working directory, as in `sys.path`."""
    # pathlib would take most of the time of a look at all modules, which each task ends with.
    return _resolved(path if path.startswith("/") else os.path.join(os.getcwd(), path))  # noqa: PTH109, PTH118


@lru_cache(maxsize=65536)
def _resolved(path: str) -> str:
    return str(real_path(path))


@lru_cache
def _installed_from(isolation: Isolation) -> frozenset[str]:
    """Return the top-level modules that pip has copied from the repository to site-packages."""
    names: set[str] = set()
    for distribution in metadata.distributions():
        with suppress(Exception):  # skip broken metadata
            text = distribution.read_text("direct_url.json")
            origin = json.loads(text) if text else {}
            url = urlsplit(origin.get("url", ""))
            if url.scheme != "file":
                continue
            # Editable installs count too: their compiled modules are copied.
            if Path(unquote(url.path)).resolve().is_relative_to(isolation.repository):
                parts = [file.parts[0] for file in distribution.files or []]
                names |= {inspect.getmodulename(part) or part for part in parts}
    return frozenset(name for name in names if not name.startswith("__editable__"))
