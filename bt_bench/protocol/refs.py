"""References to suites: those that come with bt-bench by name, a user's own by its folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from traceback import walk_tb
from typing import Any

from bt_bench.base.errors import UsageError, names_hint
from bt_bench.base.names import DEFAULT_SUITE
from bt_bench.results import Noun

_SHIPPED = "bt_bench.suites"
FOLDER = Path(__file__).resolve().parents[1] / "suites"
MODULE = "suite"
_PREFIX = "bt_bench_suite_"


class SuiteRef(Noun):
    """A reference to a suite.

    Args:
        name: name of a suite that comes with bt-bench, or of the folder.
        folder: absolute folder of a user's suite, or its file of functions; `None` for one that
            comes with bt-bench.
    """

    name: str = DEFAULT_SUITE
    folder: Path | None = None

    @property
    def package(self) -> str:
        """Name of the package that its modules are loaded as."""
        if self.folder is None:
            return f"{_SHIPPED}.{self.name}"
        digest = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:12]
        return f"{_PREFIX}{digest}"

    @property
    def is_file(self) -> bool:
        """Tell whether it is a file of functions (`bt_bench.functions`)."""
        return self.folder is not None and is_file_of_functions(self.folder)

    @property
    def root(self) -> Path | None:
        """The folder of a user's suite, which holds the file if it is one."""
        return self.folder.parent if self.folder is not None and self.is_file else self.folder


DEFAULT_REF = SuiteRef()
"""The suite that is used if none is named."""

LOADED: dict[str, SuiteRef] = {}
"""The suites whose modules are loaded, by package."""

FUNCTIONS_SUFFIX = ".py"

_loaders: list[Callable[[SuiteRef], Any]] = []


def load_suites_by(load: Callable[[SuiteRef], Any]) -> None:
    """Set the function behind `suite_at`: `load_suite`, whose module imports all of a suite."""
    _loaders[:] = [load]


def suite_at(ref: SuiteRef) -> Any:
    """Load a suite as `load_suite` does; for modules that `load_suite` itself depends on."""
    return _loaders[0](ref)


def shipped_suites() -> list[str]:
    """Return the names of the suites that come with bt-bench."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{MODULE}.py"))


def is_file_of_functions(path: Path | str) -> bool:
    """Return whether a path is named like a file of functions; no folder of a suite may be."""
    return str(path).endswith(FUNCTIONS_SUFFIX)


def find_suite(given: str, relative_to: Path, where: str = "--suite") -> SuiteRef:
    """Return the suite of a name or a folder, without running any of its code.

    Args:
        given: a name, or the path of a folder or of a file of functions.
        relative_to: folder that the path is relative to.
        where: the option or key that gave it, for messages.

    Raises:
        UsageError: if there is none.
    """
    if not given:
        raise UsageError(f"{where}: no name; expected the folder of a suite, or its name")
    if given in shipped_suites():
        return SuiteRef(name=given)
    try:
        folder = Path(os.path.realpath(relative_to / given))  # `resolve` fails for loops of links
        is_folder, has_file = folder.is_dir(), (folder / f"{MODULE}.py").is_file()
        is_file = is_file_of_functions(folder) and folder.is_file()
        is_file = is_file and folder.name != f"{MODULE}.py"  # whose folder is meant
    except (OSError, ValueError) as error:
        raise UsageError(f"{where} {given!r}: not a path of a folder: {error}") from None
    if is_file:
        return SuiteRef(name=folder.stem, folder=folder)
    if is_folder and is_file_of_functions(folder):
        raise UsageError(f"{where} {given}: is a folder named like a Python file; rename it")
    if has_file:
        return SuiteRef(name=folder.name, folder=folder)
    if is_folder:
        raise UsageError(f"{where} {given}: the folder holds no {MODULE}.py; see docs/suites.md")
    if folder.exists():
        raise UsageError(
            f"{where} {given}: is a file; expected the folder of a suite, or a Python file of "
            "functions"
        )
    hint = names_hint(given, shipped_suites())
    raise UsageError(f"{where} {given}: no such folder, nor a suite of that name; {hint}")


def ref_of(kind: type[Any]) -> SuiteRef:
    """Return the suite whose modules define a class or one of its bases.

    Raises:
        LookupError: for a class of no suite.
    """
    for base in kind.__mro__:
        module = base.__module__
        if module.startswith(f"{_SHIPPED}."):
            return SuiteRef(name=module.split(".")[2])
        found = LOADED.get(module.partition(".")[0])
        if found is not None:
            return found
    raise LookupError(
        f"{kind.__module__}.{kind.__qualname__} is of no suite; define it in a module of the "
        "suite's folder, and import that relatively, as in `from .parameters import …`"
    )


def ref_of_value(value: object) -> SuiteRef:
    """Return the suite that an object, such as a workload, belongs to.

    Raises:
        LookupError: for an object of no suite.
    """
    told: SuiteRef | None = getattr(value, "hosted_at", None)
    return told or ref_of(type(value))


def folder_at(ref: SuiteRef) -> Path:
    """Return the folder of a suite, which need not be loaded."""
    return ref.folder or FOLDER / ref.name


def definition_of(ref: SuiteRef) -> Path:
    """Return the file that defines a suite, which need not be loaded."""
    folder = folder_at(ref)
    return folder if ref.is_file else folder / f"{MODULE}.py"


def place_in(folder: Path, error: BaseException) -> str:
    """Return file and line of an error's last frame in a suite's folder, or of a syntax error."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    place = str(folder if is_file_of_functions(folder) else folder / f"{MODULE}.py")
    for frame, line in walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(folder):
            place = f"{path}:{line}"
    return place
