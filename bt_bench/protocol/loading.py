"""Finds and loads suites: those that come with bt-bench by name, a user's own by its folder."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bt_bench.errors import BtBenchError, UsageError, names_hint
from bt_bench.names import DEFAULT_SUITE
from bt_bench.protocol.fresh import load_only_sources
from bt_bench.protocol.hosting import at_suite, runs_here
from bt_bench.results import Noun, OperationInfo, SuiteInfo

if TYPE_CHECKING:
    from bt_bench.protocol.driver import Driver
    from bt_bench.protocol.suite import Suite

_SHIPPED = "bt_bench.suites"
_FOLDER = Path(__file__).resolve().parents[1] / "suites"
_MODULE = "suite"
_PREFIX = "bt_bench_suite_"


class SuiteRef(Noun):
    """Where a suite is.

    Args:
        name: of a suite that comes with bt-bench, or of the folder.
        folder: of a user's suite, absolute; `None` for one that comes with bt-bench.
    """

    name: str = DEFAULT_SUITE
    folder: Path | None = None

    @property
    def package(self) -> str:
        """The package that its modules are loaded as."""
        if self.folder is None:
            return f"{_SHIPPED}.{self.name}"
        digest = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:12]
        return f"{_PREFIX}{digest}"


DEFAULT_REF = SuiteRef()
"""The suite where none is named."""

_LOADED: dict[str, SuiteRef] = {}  # by the package of its modules


def shipped_suites() -> list[str]:
    """Names of the suites that come with bt-bench."""
    return sorted(path.parent.name for path in _FOLDER.glob(f"*/{_MODULE}.py"))


def find_suite(given: str, relative_to: Path, where: str = "--suite") -> SuiteRef:
    """The suite of a name or a folder; nothing of it is run.

    Args:
        given: a name, or the path of a folder.
        relative_to: folder that the path is relative to.
        where: what gave it, for messages.

    Raises:
        UsageError: if there is none.
    """
    if not given:
        raise UsageError(f"{where}: no name; expected the folder of a suite, or its name")
    if given in shipped_suites():
        return SuiteRef(name=given)
    try:
        folder = Path(os.path.realpath(relative_to / given))  # `resolve` fails for loops of links
        is_folder, has_file = folder.is_dir(), (folder / f"{_MODULE}.py").is_file()
    except (OSError, ValueError) as error:
        raise UsageError(f"{where} {given!r}: not a path of a folder: {error}") from None
    if has_file:
        return SuiteRef(name=folder.name, folder=folder)
    if is_folder:
        raise UsageError(f"{where} {given}: the folder holds no {_MODULE}.py; see docs/suites.md")
    if folder.exists():
        raise UsageError(f"{where} {given}: is a file; expected the folder of a suite")
    hint = names_hint(given, shipped_suites())
    raise UsageError(f"{where} {given}: no such folder, nor a suite of that name; {hint}")


def default_suite() -> Suite:
    """The suite where none is named."""
    return load_suite(SuiteRef())


def load_suite(ref: SuiteRef) -> Suite:
    """Return a suite; once per process.

    Its `suite.py` is imported, which does not load torch. Where code of users does not run, the
    suite that is returned has what its own process tells of it.

    Raises:
        UsageError: naming file and line if it does not import, and what is wrong with it if it does
            not follow the protocol.
    """
    return _load(ref) if runs_here(ref) else _told(ref)


@cache
def _told(ref: SuiteRef) -> Suite:
    from bt_bench.protocol.hosted import HostedSuite, told_of

    return HostedSuite(ref, at_suite(ref, told_of, ref))


@cache
def _load(ref: SuiteRef) -> Suite:
    before = set(sys.modules)
    module = _import(ref)
    from bt_bench.protocol.suite import Suite

    for heavy in ("torch", "triton"):
        if ref.folder is not None and heavy in sys.modules and heavy not in before:
            raise UsageError(
                f"{module.__file__}: {heavy} is loaded with the suite; import it in the functions "
                "that need it, as in driver(), since results are read without it"
            )

    path = module.__file__
    suite = getattr(module, "SUITE", None)
    if isinstance(suite, type) or not isinstance(suite, Suite):
        raise UsageError(f"{path}: SUITE is {suite!r}; expected an instance of a class of Suite")
    problems = suite.problems()
    if problems:
        places = (f"{path}{_line_of_attribute(type(suite), problem)}" for problem in problems)
        raise UsageError("\n".join(map(": ".join, zip(places, problems, strict=True))))
    return suite


def _line_of_attribute(kind: type[Suite], problem: str) -> str:
    """Return `:` and the line that gives a class the attribute that a problem begins with."""
    name = problem.partition(" ")[0]
    if name not in vars(kind):
        return ""
    try:
        lines, first = inspect.getsourcelines(kind)
    except (OSError, TypeError):  # not of a file
        return ""
    for number, line in enumerate(lines, first):
        if re.match(rf"\s+{re.escape(name)}\s*[:=]", line):
            return f":{number}"
    return ""


def _import(ref: SuiteRef) -> ModuleType:
    _LOADED[ref.package] = ref
    if ref.folder is None:
        return importlib.import_module(f"{ref.package}.{_MODULE}")
    load_only_sources()
    if ref.package not in sys.modules:
        package = ModuleType(ref.package)
        package.__path__ = [str(ref.folder)]
        sys.modules[ref.package] = package
    if str(ref.folder) not in sys.path:
        sys.path.append(str(ref.folder))  # for its package of kernels
    try:
        return importlib.import_module(f"{ref.package}.{_MODULE}")
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # SystemExit too: a file of the user must not end the program
        place = _place_in(ref.folder, error)
        raise UsageError(
            f"{place}: the suite does not import: {type(error).__name__}: {error}"
        ) from error


def _place_in(folder: Path, error: BaseException) -> str:
    """File and line of the last frame of an error that lies in a folder."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    place = str(folder / f"{_MODULE}.py")
    frame = error.__traceback__
    while frame is not None:
        path = Path(frame.tb_frame.f_code.co_filename)
        if path.is_relative_to(folder):
            place = f"{path}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place


def ref_of(kind: type[Any]) -> SuiteRef:
    """The suite whose modules define a class.

    Raises:
        LookupError: for a class of no suite.
    """
    for base in kind.__mro__:
        module = base.__module__
        if module.startswith(f"{_SHIPPED}."):
            return SuiteRef(name=module.split(".")[2])
        found = _LOADED.get(module.partition(".")[0])
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


def suite_of(value: object) -> Suite:
    """The suite that an object, such as a workload, belongs to."""
    return load_suite(ref_of_value(value))


def driver_of(suite: Suite) -> type[Driver]:
    """The class that drives variants of a suite; loads torch.

    Raises:
        UsageError: naming file and line if it does not import, or what it lacks.
    """
    return _driver_of(suite)


@cache
def _driver_of(suite: Suite) -> type[Driver]:
    from bt_bench.protocol.driver import Driver
    from bt_bench.protocol.misspelt import misspelt

    with running(suite, "driver"):
        driver = suite.driver()
    if not isinstance(driver, type) or not issubclass(driver, Driver):
        raise UsageError(f"{place_of(suite)}: driver() returned {driver!r}; expected a Driver")
    missing = ", ".join(sorted(driver.__abstractmethods__))
    if missing:
        raise UsageError(f"{place_of(suite)}: {driver.__name__} has no method {missing}")
    for problem in misspelt(driver, Driver):
        raise UsageError(f"{place_of(suite)}: {problem}")
    return driver


def folder_of(suite: Suite) -> Path:
    """The folder of a suite."""
    return folder_at(ref_of_value(suite))


def folder_at(ref: SuiteRef) -> Path:
    """The folder of a suite, which need not be loaded."""
    return ref.folder or _FOLDER / ref.name


def is_of_users_suite(path: Path) -> bool:
    """Whether a file belongs to a loaded suite of a user, and not to its package of kernels."""
    for ref in _LOADED.values():
        if ref.folder is not None and path.is_relative_to(ref.folder):
            kernels = ref.folder / load_suite(ref).package
            return not path.is_relative_to(kernels)
    return False


def loaded_files(suite: Suite) -> frozenset[str]:
    """Files of the modules of a user's suite that are loaded, without links in their paths."""
    ref = ref_of_value(suite)
    files = (
        getattr(module, "__file__", None)
        for name, module in list(sys.modules.items())
        if ref.folder is not None and name.startswith(f"{ref.package}.")
    )
    return frozenset(str(Path(file).resolve()) for file in files if file)


def place_of(suite: Suite) -> Path:
    """The file that defines a suite, for messages."""
    return folder_of(suite) / f"{_MODULE}.py"


def line_of(suite: Suite, *parts: Callable[..., Any]) -> str:
    """Name file and line of a part of a suite's code, for messages.

    Args:
        suite: the suite.
        parts: functions or classes; the first that lies in the suite's own folder.
    """
    folder = folder_of(suite)
    for part in parts:
        try:
            found = inspect.unwrap(part)
            path = Path(inspect.getsourcefile(found) or "")
            if path.is_relative_to(folder):
                lines, first = inspect.getsourcelines(found)
                decorated = takewhile(lambda line: line.lstrip().startswith("@"), lines)
                return f"{path}:{max(1, first) + len(list(decorated))}"
        except (OSError, TypeError, ValueError):  # not of a file
            continue
    return str(place_of(suite))


@contextmanager
def running(suite: Suite, what: str) -> Iterator[None]:
    """Makes whatever the code of a user's suite raises in the block an error of the user's.

    Args:
        suite: the suite; one that comes with bt-bench has defects, as all of bt-bench.
        what: what runs, such as `build`.

    Raises:
        UsageError: in place of any exception but those of bt-bench, naming file and line.
    """
    ref = ref_of_value(suite)
    try:
        yield
    except (BtBenchError, MemoryError):
        raise
    except Exception as error:
        if ref.folder is None:
            raise
        raise UsageError(
            f"{_place_in(ref.folder, error)}: {what} of suite {suite.name!r} failed: "
            f"{type(error).__name__}: {error}"
        ) from error


def source_sha256(suite: Suite) -> str:
    """Digest of the suite's own modules and of its reference: what is measured and checked.

    Its other kernels have digests of their own.
    """
    folder = folder_of(suite)
    kernels = folder / suite.package
    digest = hashlib.sha256()
    reference = _kernels_of(suite) / "variants" / "reference.py"
    if reference.is_file():  # else it is missed where variants are looked for
        digest.update(reference.read_bytes())
    for path in sorted(folder.rglob("*.py")):
        if not path.is_relative_to(kernels) and is_regular(path):
            digest.update(os.fsencode(path.relative_to(folder)) + b"\0" + path.read_bytes())
    return digest.hexdigest()


def is_regular(path: Path) -> bool:
    """Say whether a path leads to a file that can be read to its end: no folder, pipe or dead link.

    Unlike `Path.is_file`, it says no where it cannot find out.
    """
    return os.path.isfile(path)  # noqa: PTH113


def _kernels_of(suite: Suite) -> Path:
    """The folder of a suite's package of kernels."""
    if suite.kernels is not None:
        return suite.kernels / suite.package
    return package_folder(suite.package)


def package_folder(package: str) -> Path:
    """Return the folder of an installed package of kernels, which is not imported for that.

    Raises:
        UsageError: if it is not installed.
    """
    outer, *inner = package.split(".")
    spec = importlib.util.find_spec(outer)
    if spec is None or spec.origin is None:
        raise UsageError(f"the package {package} is not installed; install bt-bench again")
    return Path(spec.origin).parent.joinpath(*inner)


def info_of(suite: Suite) -> SuiteInfo:
    """What results keep of a suite."""
    return SuiteInfo(
        name=suite.name,
        protocol=suite.protocol,
        source_sha256=source_sha256(suite),
        operations=[
            OperationInfo(
                name=str(operation),
                title=operation.traits.title,
                on_host=operation.traits.on_host,
                stages=operation.traits.stages,
                first=operation in suite.defaults,
            )
            for operation in suite.operations
        ],
    )
