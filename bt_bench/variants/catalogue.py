"""Discovery of variants: one Python file each, shipped or in a user's own folders."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any
from weakref import WeakSet

from bt_bench.base.errors import UsageError, names_hint
from bt_bench.base.extras import refuse_packed
from bt_bench.base.python_files import NOT_READ, python_text, summary_of_file
from bt_bench.protocol import (
    FreshSourceLoader,
    NoOpponents,
    Opponent,
    Opponents,
    Suite,
    SuiteRef,
    default_suite,
    definition_of,
    is_regular,
    load_suite,
    misspelt_overrides,
    package_folder,
    ref_of_value,
)
from bt_bench.results import BASELINE
from bt_bench.variants.raised import is_interrupt, text_of

REFERENCE = "reference"
_FUNCTIONS = "bt_bench.functions.loaded"  # a layer above; it is loaded for files of functions alone

_ADAPTED: WeakSet[type[Any]] = WeakSet()  # classes of entries that have an `opponent`


@dataclass(frozen=True)
class VariantEntry:
    """A variant file that was found; its code has not run yet.

    Args:
        name: the file's stem.
        summary: the first line of the module's docstring.
        path: the file.
        shipped: part of the suite's package of kernels, rather than of a user's folder.
        package: the suite's package of kernels, which variants import.
        methods: the methods that the variant's class must have.
        kernels: the folder that `package` is imported from; `None`: the installed package. Only
            `load_apart` can load a variant of another folder.
        opponent: the third-party code that the file adapts; `None` for ordinary variants.
        is_function: functions of that name, in a file of functions, are the variant.
        subpackage: of `package`, where the suite's variants are.
    """

    name: str
    summary: str
    path: Path
    shipped: bool
    package: str
    methods: tuple[str, ...] = ()
    kernels: Path | None = None
    opponent: Opponent | None = None
    is_function: bool = False
    subpackage: str = "variants"

    @property
    def is_reference(self) -> bool:
        """Whether it is the reference, which is no arm."""
        return self.name == REFERENCE

    def source_sha256(self) -> str:
        """Return the digest of the variant's file and of all Python and C code of its package.

        For an opponent, return the digest of its own files and of the code that adapts them; for a
        function, of its file and of the modules that the file imports from its folder.
        """
        digest = hashlib.sha256(self.path.read_bytes())
        if self.opponent is not None:
            self.opponent.source.update(digest)
            return digest.hexdigest()
        if self.is_function:
            for path in sorted(local_imports(self.path)):
                digest.update(path.read_bytes())
            return digest.hexdigest()
        folder = kernels_folder(self.package, self.kernels)
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".c", ".h") and is_regular(path):
                digest.update(path.read_bytes())
        return digest.hexdigest()


def find_variants(
    folders: Iterable[Path] = (),
    kernels: Path | None = None,
    opponents: Opponents | None = None,
    suite: Suite | None = None,
) -> dict[str, VariantEntry]:
    """Return all variants by name, without running any of them.

    These are the suite's variants, the variants in `folders`, and the opponents.

    Args:
        folders: a user's own folders.
        kernels: the folder that holds another revision of the suite's kernels; `None`: its own.
        opponents: the suite's opponents; `None`: none.
        suite: the suite; `None`: the default one.

    Raises:
        UsageError: if a folder does not exist or has no variant file, or if a name is a duplicate
            or belongs to an opponent.
    """
    suite = suite or default_suite()
    opponents = opponents or NoOpponents()
    kernels = kernels or suite.kernels
    if suite.listed is not None:
        shipped = _functions(suite, kernels)
    else:
        folder = variants_folder(suite.package, kernels, suite.variants)
        refuse_packed(folder)
        shipped = _entries(suite, folder, kernels, shipped=True)
    found = {entry.name: entry for entry in shipped}
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(
                f"--kernels {folder}: no such folder; expected a folder of variant files"
            )
        entries = _entries(suite, folder, kernels, shipped=False)
        if not entries:
            raise UsageError(f"--kernels {folder}: holds no variant file (a .py file)")
        for entry in entries:
            if entry.name in found:
                other = found[entry.name]
                place = "the shipped variants" if other.shipped else other.path
                raise UsageError(
                    f"{entry.path}: variant {entry.name!r} exists already in {place}; rename the "
                    "file"
                )
            if suite.is_opponent(entry.name):
                raise UsageError(
                    f"{entry.path}: {entry.name!r} is a name of a variant that wraps code of "
                    "others; rename the file"
                )
            found[entry.name] = entry
    for name, opponent in opponents.entries.items():
        found[name] = VariantEntry(
            name,
            opponent.summary,
            opponent.adapter,
            shipped=False,
            package=suite.package,
            opponent=opponent,
        )
    return found


def default_variants(suite: Suite | None = None) -> list[str]:
    """Return the names of the variants that can be arms: the baseline first, then by name.

    Functions are in the order of their file.
    """
    names = [name for name in find_variants(suite=suite) if name != REFERENCE]
    if suite is not None and suite.listed is not None:
        return names  # in the order of the file, the references first
    return sorted(names, key=lambda name: (name != BASELINE, name))


def choose(names: Sequence[str], found: dict[str, VariantEntry]) -> list[VariantEntry]:
    """Return the named variants, in that order.

    Raises:
        UsageError: for an unknown name, and for the reference, which is not timed.
    """
    for name in names:
        if name not in found:
            raise UsageError(
                f"unknown variant {name!r}; {names_hint(name, sorted(set(found) - {REFERENCE}))} "
                "(--kernels DIR, or 'kernels' in the config, adds a folder of your own)"
            )
        if name == REFERENCE:
            raise UsageError(
                f"variant {REFERENCE!r} is the reference that the others are checked against, and "
                "no arm; leave it out"
            )
    return [found[name] for name in names]


def load(entry: VariantEntry) -> type[Any]:
    """Import a variant's file and return its class.

    Raises:
        UsageError: if the file does not import, lacks the class or a method, or, as a user's file,
            has a method whose name looks misspelt. The message names the file and any known line.
    """
    try:
        if entry.is_function:
            variant: type[Any] = importlib.import_module(_FUNCTIONS).load_variant(entry)
            return variant
        module = _import(entry)
    except MemoryError:
        raise
    except BaseException as error:
        if is_interrupt(error) or (entry.is_function and isinstance(error, UsageError)):
            raise
        line = _line_in(entry.path, error)
        raise UsageError(
            f"{entry.path}{line}: the variant file does not import: "
            f"{type(error).__name__}: {text_of(error)}"
        ) from error
    if entry.opponent is not None:
        adapted: type[Any] = module.adapt(entry.opponent.source)
        _ADAPTED.add(adapted)
        return adapted
    variant = getattr(module, "Variant", None)  # type: ignore[assignment]
    if not isinstance(variant, type):
        raise UsageError(f"{entry.path}: lacks a class 'Variant' (see docs/variants.md)")
    missing = [name for name in entry.methods if not callable(getattr(variant, name, None))]
    missing += sorted(set(getattr(variant, "__abstractmethods__", ())) - set(missing))
    if missing:
        raise UsageError(f"{entry.path}: class 'Variant' lacks {', '.join(missing)}")
    if not entry.shipped:
        source = python_text(entry.path)
        for number, problem in misspelt_overrides(variant, source):
            raise UsageError(f"{entry.path}:{number}: {problem}")
    return variant


def is_adapted(kind: type[Any]) -> bool:
    """Return whether a class was loaded as an opponent.

    A class derived from an opponent's is not one: a user's file can derive from any class.
    """
    return kind in _ADAPTED


def load_apart(entry: VariantEntry) -> type[Any]:
    """Load a variant as `load` does, with its own copy of the file and of the kernels' package.

    Python specialises a function's code for the types that it last met. If arms of different
    classes took turns in the same functions, they would undo each other's specialisations, and the
    class that was there first would come out faster by microseconds. In an engine there is only one
    class. Therefore, each arm gets functions that no other arm runs.

    Raises:
        UsageError: as `load`, and if the package is imported from another folder than it should be.
    """
    shared = {name: sys.modules[name] for name in modules_of(entry.package)}
    own_name = None if entry.shipped else _module_name(entry)
    for name in (*shared, own_name):
        sys.modules.pop(name or "", None)
    try:
        with _importing_from(entry.package, entry.kernels):
            return load(entry)
    finally:
        for name in modules_of(entry.package):
            del sys.modules[name]
        sys.modules.update(shared)


@contextmanager
def _importing_from(package: str, kernels: Path | None) -> Iterator[None]:
    """Import a package of kernels from a folder during the block; refuse one from elsewhere."""
    if kernels is None:
        yield
        return
    sys.path.insert(0, str(kernels))
    try:
        yield
        origin = getattr(sys.modules.get(package), "__file__", None)
        if origin is not None and not Path(origin).resolve().is_relative_to(kernels.resolve()):
            raise UsageError(
                f"{package} was imported from {Path(origin).parent}, but {kernels / package} "
                "is to be measured; remove the former from the front of sys.path"
            )
    finally:
        sys.path.remove(str(kernels))


def modules_of(package: str) -> list[str]:
    """Return the names of a package's loaded modules."""
    return [name for name in sys.modules if name.partition(".")[0] == package]


@cache
def load_reference(suite: Suite | None = None) -> type[Any]:
    """Return the class of a suite's own reference, the same one for the life of the process.

    Raises:
        UsageError: as `load`, and if there is no reference.
    """
    found = find_variants(suite=suite)
    if REFERENCE not in found:
        folder = next(iter(found.values())).path.parent if found else "its folder of variants"
        raise UsageError(
            f"{folder}: has no {REFERENCE}.py; expected the variant that others are checked against"
        )
    return load_apart(found[REFERENCE]) if found[REFERENCE].kernels else load(found[REFERENCE])


def variants_folder(
    package: str, kernels: Path | None = None, subpackage: str = "variants"
) -> Path:
    """Return the folder of a package's variants, installed or within `kernels`.

    Raises:
        UsageError: if `kernels` has no such folder.
    """
    below = subpackage.replace(".", "/")
    folder = kernels_folder(package, kernels) / below
    if kernels is not None and not folder.is_dir():
        raise UsageError(
            f"{kernels}: holds no {package}/{below}; expected the folder that holds "
            f"{package}, the package of kernels that the suite names"
        )
    return folder


def kernels_folder(package: str, kernels: Path | None = None) -> Path:
    """Return the folder of a package of kernels, installed or within `kernels`."""
    return package_folder(package) if kernels is None else kernels / package


def _functions(suite: Suite, kernels: Path | None) -> list[VariantEntry]:
    """Return the variants of a file of functions; of another revision, those that it has."""
    file = definition_of(ref_of_value(suite))
    path = file if kernels is None else kernels / file.name
    if not is_regular(path):
        raise UsageError(f"{path}: no such file; expected the functions of this revision")
    if path != file:
        suite = load_suite(SuiteRef(name=path.stem, folder=path))
    return [
        VariantEntry(name, summary, path, True, suite.package, (), path.parent, is_function=True)
        for name, summary in (suite.listed or {}).items()
    ]


def local_imports(path: Path) -> frozenset[Path]:
    """Return the files below a file's folder that it imports, directly or not, without itself."""
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        try:
            nodes = ast.walk(ast.parse(waiting.pop().read_bytes()))
        except NOT_READ:
            continue  # reported where it is loaded
        names = set()
        for node in nodes:
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        for name in names:
            place = path.parent.joinpath(*name.split("."))
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if is_regular(file) and file != path and file not in found:
                    found.add(file)
                    waiting.append(file)
    return frozenset(found)


def _entries(
    suite: Suite, folder: Path, kernels: Path | None, *, shipped: bool
) -> list[VariantEntry]:
    paths = sorted(path for path in folder.glob("*.py") if _may_be_a_variant(path))
    methods = (*(operation.method for operation in suite.operations), *suite.methods)
    return [
        VariantEntry(
            *(path.stem, summary_of_file(path), path, shipped, suite.package, methods, kernels),
            subpackage=suite.variants,
        )
        for path in paths
    ]


def _may_be_a_variant(path: Path) -> bool:
    """Return whether a path is a regular file with a printable name and no leading `_` or `.`."""
    is_named = not path.name.startswith(("_", ".")) and path.name.isprintable()
    return is_named and is_regular(path)


def _import(entry: VariantEntry) -> ModuleType:
    if entry.shipped:
        return importlib.import_module(f"{entry.package}.{entry.subpackage}.{entry.name}")
    name = _module_name(entry)
    if name in sys.modules:
        return sys.modules[name]
    loader = FreshSourceLoader(name, str(entry.path))
    spec = importlib.util.spec_from_file_location(name, entry.path, loader=loader)
    if spec is None:
        raise ImportError(f"cannot load {entry.path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module_name(entry: VariantEntry) -> str:
    """Return the module name of a user's file, with a digest of its path to keep folders apart."""
    digest = hashlib.sha256(os.fsencode(entry.path.resolve())).hexdigest()[:12]
    return f"bt_bench_variants_{digest}_{entry.name}"


def _line_in(path: Path, error: BaseException) -> str:
    """Return `:LINE` of an error in `path`, or of its last frame there, or an empty text."""
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno or 0))
    lines = [line for file, line in places if line and Path(file).resolve() == path.resolve()]
    return f":{lines[-1]}" if lines else ""
