"""Finds variants: one Python file each, shipped ones and a user's own folders of them."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from bt_bench.errors import UsageError, names_hint
from bt_bench.names import Operation
from bt_bench.results import BASELINE
from bt_bench.variants.isolation import FreshSourceLoader
from bt_bench.variants.raised import is_interrupt, text_of
from bt_bench.variants.vllm.source import VLLM, Sources, VllmSource, is_opponent

REFERENCE = "reference"
ADAPTER = Path(__file__).parent / "vllm" / "adapter.py"

REQUIRED_METHODS = (*(each.traits.method for each in Operation), "snapshot", "restore")


@dataclass(frozen=True)
class VariantEntry:
    """A variant file that was found; its code has not run yet.

    Args:
        name: the file's stem.
        summary: first line of the module's docstring.
        path: the file.
        shipped: part of `bt_kernels`, rather than of a user's folder.
        kernels: folder that `bt_kernels` is imported from; `None`: what is installed. Only
            `load_apart` can load a variant of another folder.
        opponent: the vLLM whose block tables the file adapts; `None` for ordinary variants.
    """

    name: str
    summary: str
    path: Path
    shipped: bool
    kernels: Path | None = None
    opponent: VllmSource | None = None

    def source_sha256(self) -> str:
        """Digest of the variant's file and of all of `bt_kernels`, Python and C, as it may use any.

        Of an opponent it is that of its files and of what adapts them.
        """
        digest = hashlib.sha256(self.path.read_bytes())
        if self.opponent is not None:
            self.opponent.update(digest)
            return digest.hexdigest()
        folder = shipped_folder(self.kernels).parent
        for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".c")):
            digest.update(path.read_bytes())
        return digest.hexdigest()


def find_variants(
    folders: Iterable[Path] = (),
    kernels: Path | None = None,
    sources: Sources | None = None,
) -> dict[str, VariantEntry]:
    """All variants by name: the shipped ones, those of `folders`, vLLM's own; runs none of them.

    Args:
        folders: a user's own.
        kernels: folder that holds another revision of `bt_kernels`; `None`: what is installed.
        sources: of opponents; `None`: there are none.

    Raises:
        UsageError: for a folder that does not exist or is empty, and for a duplicate name.
    """
    shipped = _entries(shipped_folder(kernels), shipped=True, kernels=kernels)
    found = {entry.name: entry for entry in shipped}
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(
                f"--kernels {folder}: no such folder; expected a folder of variant files"
            )
        entries = _entries(folder, shipped=False, kernels=kernels)
        if not entries:
            raise UsageError(f"--kernels {folder}: holds no variant file (a .py file)")
        for entry in entries:
            if entry.name in found:
                raise UsageError(
                    f"{entry.path}: variant {entry.name!r} exists already in "
                    f"{_shown(found[entry.name])}; rename the file"
                )
            if is_opponent(entry.name):
                raise UsageError(
                    f"{entry.path}: names that begin with {VLLM!r} are those of vLLM's own block "
                    "tables; rename the file"
                )
            found[entry.name] = entry
    for name, source in sources.names().items() if sources is not None else ():
        summary = f"BlockTables of vLLM {source.release} itself"
        found[name] = VariantEntry(name, summary, ADAPTER, shipped=False, opponent=source)
    return found


def default_variants() -> list[str]:
    """The shipped variants that can be arms: the baseline, then the others by name."""
    names = [entry.name for entry in _entries(shipped_folder(), shipped=True)]
    others = [name for name in names if name not in (BASELINE, REFERENCE)]
    return [BASELINE, *others]


def choose(names: Sequence[str], found: dict[str, VariantEntry]) -> list[VariantEntry]:
    """The named variants, in that order.

    Raises:
        UsageError: for an unknown name, or the reference, which is not timed.
    """
    for name in names:
        if name not in found:
            raise UsageError(
                f"unknown variant {name!r}; {names_hint(name, sorted(set(found) - {REFERENCE}))} "
                "(--kernels DIR adds a folder of your own)"
            )
        if name == REFERENCE:
            raise UsageError(
                f"variant {REFERENCE!r} is what the others are checked against and is not run as "
                "an arm; leave it out"
            )
    return [found[name] for name in names]


def load(entry: VariantEntry) -> type[Any]:
    """Imports a variant's file and returns its class.

    Raises:
        UsageError: when the file does not import or lacks something, naming file and line.
    """
    try:
        module = _import(entry)
    except MemoryError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        line = _line_in(entry.path, error)
        raise UsageError(
            f"{entry.path}{line}: the variant file does not import: "
            f"{type(error).__name__}: {text_of(error)}"
        ) from error
    if entry.opponent is not None:
        adapted: type[Any] = module.adapt(entry.opponent)
        return adapted
    variant = getattr(module, "Variant", None)
    if not isinstance(variant, type):
        raise UsageError(f"{entry.path}: lacks a class 'Variant' (see docs/variants.md)")
    missing = [name for name in REQUIRED_METHODS if not callable(getattr(variant, name, None))]
    missing += sorted(set(getattr(variant, "__abstractmethods__", ())) - set(missing))
    if missing:
        raise UsageError(f"{entry.path}: class 'Variant' lacks {', '.join(missing)}")
    return variant


def load_apart(entry: VariantEntry) -> type[Any]:
    """As `load`, but with a copy of `bt_kernels`, and of the file itself, of its own.

    Python specialises the code of a function for the types that it last met. Arms of different
    classes that take turns in the same functions would undo each other's specialisations, and the
    class that was there first would come out faster by microseconds. In an engine there is only
    one class; so each arm gets functions that no other arm runs.

    Raises:
        UsageError: as `load`.
    """
    shared = {name: module for name, module in sys.modules.items() if _is_kernels(name)}
    own_name = None if entry.shipped else _module_name(entry)
    for name in (*shared, own_name):
        sys.modules.pop(name or "", None)
    try:
        with _importing_from(entry.kernels):
            return load(entry)
    finally:
        for name in [name for name in sys.modules if _is_kernels(name)]:
            del sys.modules[name]
        sys.modules.update(shared)


@contextmanager
def _importing_from(kernels: Path | None) -> Iterator[None]:
    """Makes `bt_kernels` come from a folder, and refuses it if it comes from elsewhere."""
    if kernels is None:
        yield
        return
    sys.path.insert(0, str(kernels))
    try:
        yield
        origin = getattr(sys.modules.get("bt_kernels"), "__file__", None)
        if origin is not None and not Path(origin).resolve().is_relative_to(kernels.resolve()):
            raise UsageError(
                f"bt_kernels was imported from {Path(origin).parent}, but {kernels / 'bt_kernels'} "
                "is to be measured; remove what puts the former before sys.path"
            )
    finally:
        sys.path.remove(str(kernels))


def _is_kernels(name: str) -> bool:
    return name.partition(".")[0] == "bt_kernels"


@cache
def load_reference() -> type[Any]:
    """The class of the installed reference; the same for as long as the process lives."""
    return load(find_variants()[REFERENCE])


def shipped_folder(kernels: Path | None = None) -> Path:
    """The folder of the shipped variants: of what is installed, or of another `bt_kernels`.

    Raises:
        UsageError: where there is none.
    """
    if kernels is not None:
        folder = kernels / "bt_kernels" / "variants"
        if not folder.is_dir():
            raise UsageError(f"{kernels}: holds no bt_kernels/variants; expected the kernels' root")
        return folder
    spec = importlib.util.find_spec("bt_kernels.variants")
    if spec is None or spec.origin is None:
        raise UsageError("the package bt_kernels is not installed; install bt-bench again")
    return Path(spec.origin).parent


def _entries(folder: Path, shipped: bool, kernels: Path | None = None) -> list[VariantEntry]:
    paths = sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))
    return [VariantEntry(path.stem, _summary(path), path, shipped, kernels) for path in paths]


def _summary(path: Path) -> str:
    """First line of a module's docstring, read without running it; empty if it does not parse."""
    try:
        docstring = ast.get_docstring(ast.parse(path.read_bytes()))
    except (SyntaxError, ValueError):
        return ""  # `load` says what is wrong when the variant is asked for
    return docstring.splitlines()[0] if docstring else ""


def _import(entry: VariantEntry) -> ModuleType:
    if entry.shipped:
        return importlib.import_module(f"bt_kernels.variants.{entry.name}")
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
    """Module name of a user's file; the path is part of it, so that two folders may be used."""
    digest = hashlib.sha256(str(entry.path.resolve()).encode()).hexdigest()[:12]
    return f"bt_bench_variants_{digest}_{entry.name}"


def _line_in(path: Path, error: BaseException) -> str:
    """`:LINE` of the last frame of an error that lies in `path`, or nothing."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f":{error.lineno}"
    line = ""
    frame = error.__traceback__
    while frame is not None:
        if Path(frame.tb_frame.f_code.co_filename).resolve() == path.resolve():
            line = f":{frame.tb_lineno}"
        frame = frame.tb_next
    return line


def _shown(entry: VariantEntry) -> str:
    return "the shipped variants" if entry.shipped else str(entry.path)
