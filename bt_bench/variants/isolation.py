"""The files that a revision's process may use: its own tree, and everything outside any tree.

Both trees lie on the same disk, and much leads from one to the other: the module path, an editable
install, a symlink, the working directory. `bt_bench.worker.isolation.fence` enforces the
separation.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

CACHES = {
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "NUMBA_CACHE_DIR": "numba",
}
VARIANTS_PATH = "BT_BENCH_PYTHONPATH"
TOOL = Path(__file__).resolve().parents[1]
"""The measuring package; it is the same for all revisions, wherever it is installed."""


@dataclass(frozen=True)
class Isolation:
    """The tree of a process, and the places that the process must not use.

    Args:
        label: the revision's name in reports.
        own: the top of its tree, without symlinks.
        others: the tops of the other trees, with the labels of their revisions.
        repository: the top of the user's checkout; its paths in the environment stand for the same
            places in `own`.
        caches: a folder of this revision alone, for files that are built while it runs.
        path: folders of the own tree that come first on the path of modules.
        installed: places of installed files, which are the same for all revisions; see
            `installed_places`.
        tracked: files that git tracks within the installed places or in the temporary folder,
            relative to the tops. They belong to their trees all the same.
        package: the package of kernels that each tree has its own copy of.
        suite: files of the user's suite that are loaded before any variant; they are the same for
            all revisions.
        audited: whether to check every file that a variant opens. Each check takes time, and a
            process that is timed goes without.
        temporary: the user's folder of temporary files.
    """

    label: str
    own: Path
    others: tuple[tuple[str, Path], ...]
    repository: Path
    caches: Path
    path: tuple[Path, ...] = ()
    installed: tuple[Path, ...] = ()
    tracked: tuple[Path, ...] = ()
    package: str = ""
    suite: frozenset[str] = frozenset()
    audited: bool = False
    temporary: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))

    @cached_property
    def _roots(self) -> list[tuple[str, str | None]]:
        """Folders with the labels of their trees, deepest first; `None`: outside any tree."""
        trees = [(self.label, self.own), *self.others]
        roots: list[tuple[Path, str | None]] = [(top, label) for label, top in trees]
        roots += [(top / file, label) for label, top in trees for file in self.tracked]
        # The trees may lie among temporary files, and are deeper then.
        free = [self.caches, TOOL, self.repository / ".git", self.temporary]
        roots += [(real_path(folder), None) for folder in free]
        roots += [(place, None) for place in self.installed]
        roots.sort(key=lambda root: len(root[0].parts), reverse=True)
        return [(str(folder), label) for folder, label in roots]

    def _label_of(self, path: str) -> str | None:
        if path in self.suite:
            return None
        return next((label for top, label in self._roots if _is_below(path, top)), None)

    def is_own(self, path: str) -> bool:
        """Return whether a path without symlinks lies in the own tree and is not installed."""
        return self._label_of(path) == self.label

    def owner_of(self, path: str) -> str | None:
        """Return the label of the other tree that holds a path without symlinks, or `None`."""
        label = self._label_of(path)
        return None if label == self.label else label

    def mapped(self, path: str) -> Path | None:
        """Return the place in the own tree for a place in another tree.

        Returns:
            The place, or `None` for a place outside any tree, or in the own one.
        """
        return None if self.owner_of(path) is None else self._counterpart(path)

    def _counterpart(self, path: str) -> Path | None:
        """Return the counterpart in the own tree of a place in another tree; it need not exist."""
        tops = [str(top) for _, top in self.others if _is_below(path, str(top))]
        if not tops or _is_below(path, str(self.own)):
            return None
        return self.own.joinpath(*Path(path).relative_to(max(tops, key=len)).parts)

    def beside(self, path: str) -> Path | None:
        """Return the own tree's counterpart of an installed folder that holds tracked files.

        An example is `bin` of an environment at the top of a repository: both folders are used.
        """
        if self._label_of(path) is not None:
            return None
        tracked = (str(top / file) for _, top in self.others for file in self.tracked)
        return self._counterpart(path) if any(_is_below(file, path) for file in tracked) else None

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment with paths into other trees led to the own one, if they exist."""
        found = dict(environment)
        for name, value in environment.items():
            entries = value.split(os.pathsep)
            if any(entry.startswith("/") for entry in entries):
                found[name] = os.pathsep.join(led for entry in entries for led in self.led(entry))
        first = [str(folder) for folder in self.path]
        found["PYTHONPATH"] = os.pathsep.join([*first, *filter(None, [found.get("PYTHONPATH")])])
        if not found["PYTHONPATH"]:
            del found["PYTHONPATH"]
        # Both revisions may use the same names for files that they build: Triton's cache key, for
        # one, lacks the constants that a kernel reads from a module.
        for variable, folder in CACHES.items():
            found[variable] = str(self.caches / folder)
        return found

    def led(self, entry: str) -> list[str]:
        """Return the places to use for a path: its counterpart in the own tree, if that exists.

        If sources lie among the installed files, return both places; see `beside`.
        """
        if not entry.startswith("/"):
            return [entry]
        real = str(real_path(entry))
        mapped, beside = self.mapped(real), self.beside(real)
        if beside is not None:
            return [str(beside), entry]
        return [entry] if mapped is None or not is_there(mapped) else [str(mapped)]


def installed_places(is_shared: Callable[[Path], bool] = lambda _: True) -> list[Path]:
    """Return the places of the running Python and of everything installed in it.

    Args:
        is_shared: whether a folder also holds sources, as after `python -m venv .` at the top of a
            repository. An environment in a folder of its own counts as a whole.
    """
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    folders = {*site.getsitepackages(prefixes), site.getusersitepackages()}
    folders |= {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    places = set(map(Path, folders))
    links: set[Path] = set()
    for prefix in map(real_path, prefixes):
        if is_shared(prefix):
            headers = f"include/python{sys.version_info.major}.{sys.version_info.minor}"
            places |= {prefix / name for name in ("bin", "pyvenv.cfg", headers)}
            # The link alone: it leads to `lib`, where sources may be.
            links |= {prefix / "lib64"} if (prefix / "lib64").is_symlink() else set()
        else:
            places.add(prefix)
    there = [place for place in places if is_there(place)]
    found = {real_path(place.parent) / place.name for place in there}
    return sorted(found | {real_path(place) for place in there} | links)


def real_path(path: Path | str) -> Path:
    """Return a path without symlinks; unlike `Path.resolve`, it does not fail on loops of links."""
    return Path(os.path.realpath(path))


def is_there(path: Path) -> bool:
    """Return whether a path exists; unlike `Path.exists`, return `False` on errors."""
    return os.path.exists(path)  # noqa: PTH110


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(top if top.endswith("/") else f"{top}/")


def add_variants_path() -> None:
    """Add `BT_BENCH_PYTHONPATH`, a PYTHONPATH for the variants' imports but not for the tool's.

    Call this once the tool's own modules are imported, which it cannot replace then.
    """
    text = os.environ.get(VARIANTS_PATH)
    if text:
        sys.path[:0] = [str(Path(entry).absolute()) for entry in text.split(os.pathsep) if entry]
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = f"{text}{os.pathsep}{before}" if before else text
