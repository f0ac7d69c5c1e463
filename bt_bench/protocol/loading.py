"""Loading of suites: those that come with bt-bench, and a user's own from its folder."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType

from bt_bench.base.errors import UsageError
from bt_bench.protocol.driver import Driver
from bt_bench.protocol.fresh import load_only_sources
from bt_bench.protocol.hosted import HostedSuite, told_of
from bt_bench.protocol.hosting import at_suite, runs_here
from bt_bench.protocol.misspelt import misspelt
from bt_bench.protocol.owners import folder_of, place_of, running
from bt_bench.protocol.refs import (
    LOADED,
    MODULE,
    SuiteRef,
    folder_at,
    load_suites_by,
    place_in,
    ref_of,
    ref_of_value,
)
from bt_bench.protocol.suite import Suite
from bt_bench.results import OperationInfo, SuiteInfo

_FUNCTIONS = "bt_bench.functions.suite"  # a layer above; it is loaded for files of functions alone

_loaded: dict[SuiteRef, Suite] = {}


def default_suite() -> Suite:
    """Return the suite that is used if none is named."""
    return load_suite(SuiteRef())


def loaded_suites() -> list[Suite]:
    """Return the suites whose code this process has loaded."""
    return list(_loaded.values())


def load_suite(ref: SuiteRef) -> Suite:
    """Return a suite, loaded once per process.

    Its `suite.py` is imported, which does not load torch. Where users' code does not run, the
    returned suite holds the data from its own process.

    Raises:
        UsageError: naming file and line if it does not import, and its defects if it does not
            follow the protocol.
    """
    return _load(ref) if runs_here(ref) else _told(ref)


load_suites_by(load_suite)


@cache
def _told(ref: SuiteRef) -> Suite:
    return HostedSuite(ref, at_suite(ref, told_of, ref))


@cache
def _load(ref: SuiteRef) -> Suite:
    before = set(sys.modules)
    module = _import(ref)
    for heavy in ("torch", "triton"):
        if ref.folder is None or ref.is_file:
            continue
        if heavy in sys.modules and heavy not in before:
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
    _loaded[ref] = suite
    return suite


def _line_of_attribute(kind: type[Suite], problem: str) -> str:
    """Return `:` and the line where a class sets the attribute that a problem begins with."""
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
    LOADED[ref.package] = ref
    if ref.folder is None:
        return importlib.import_module(f"{ref.package}.{MODULE}")
    load_only_sources()
    if ref.package not in sys.modules:
        package = ModuleType(ref.package)
        package.__path__ = [str(ref.root)]
        sys.modules[ref.package] = package
    if str(ref.root) not in sys.path:
        sys.path.append(str(ref.root))  # for its package of kernels
    try:
        if ref.is_file:
            made: ModuleType = importlib.import_module(_FUNCTIONS).module_of(ref)
            return made
        return importlib.import_module(f"{ref.package}.{MODULE}")
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # SystemExit too: a file of the user must not end the program
        if ref.is_file and isinstance(error, UsageError):
            raise  # of a declaration, which names its line
        place = place_in(ref.folder, error)
        raise UsageError(
            f"{place}: the suite does not import: {type(error).__name__}: {error}"
        ) from error


@cache
def driver_of(suite: Suite) -> type[Driver]:
    """Return the class that drives variants of a suite; this loads torch.

    Raises:
        UsageError: naming file and line if it does not import, or the defect of the class.
    """
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


def is_of_users_suite(path: Path) -> bool:
    """Return whether a file belongs to a user's loaded suite, outside its package of kernels."""
    for ref in LOADED.values():
        if ref.folder is not None and not ref.is_file and path.is_relative_to(ref.folder):
            kernels = ref.folder / load_suite(ref).package
            return not path.is_relative_to(kernels)
    return False


def loaded_files(suite: Suite) -> frozenset[str]:
    """Return the files of a user's suite whose modules are loaded, with links resolved."""
    ref = ref_of_value(suite)
    files = (
        getattr(module, "__file__", None)
        for name, module in list(sys.modules.items())
        if ref.folder is not None and name.startswith(f"{ref.package}.")
    )
    return frozenset(str(Path(file).resolve()) for file in files if file)


def source_sha256(suite: Suite) -> str:
    """Return the digest of the suite's own modules and of its reference.

    These drive and check the variants, and so do the modules of a suite that it derives from. The
    suite's other kernels have digests of their own.
    """
    digest = hashlib.sha256()
    if suite.listed is not None:
        digest.update(repr(sorted(suite.driving.items())).encode())
        return digest.hexdigest()
    folder = folder_of(suite)
    kernels = folder / suite.package
    reference = _kernels_of(suite).joinpath(*suite.variants.split("."), "reference.py")
    if reference.is_file():  # a missing one is reported by the search for variants
        digest.update(reference.read_bytes())
    for root in dict.fromkeys((folder, *_folders_of_bases(suite))):
        for path in sorted(root.rglob("*.py")):
            if not path.is_relative_to(kernels) and is_regular(path):
                digest.update(os.fsencode(path.relative_to(root)) + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _folders_of_bases(suite: Suite) -> Iterator[Path]:
    """Yield the folders of suites whose classes a suite derives from."""
    for base in type(suite).__mro__[1:]:
        if issubclass(base, Suite) and base is not Suite:
            with suppress(LookupError):  # of no suite, such as of an installed package
                yield folder_at(ref_of(base))


def is_regular(path: Path) -> bool:
    """Return whether a path leads to a regular file, and not to a folder, pipe or dead link.

    Unlike `Path.is_file`, it returns `False` if it cannot find out.
    """
    return os.path.isfile(path)  # noqa: PTH113


def _kernels_of(suite: Suite) -> Path:
    """Return the folder of a suite's package of kernels."""
    if suite.kernels is not None:
        return suite.kernels / suite.package
    return package_folder(suite.package)


def package_folder(package: str) -> Path:
    """Return the folder of an installed package of kernels, without importing it.

    Raises:
        UsageError: if it is not installed.
    """
    outer, *inner = package.split(".")
    spec = importlib.util.find_spec(outer)
    if spec is None or spec.origin is None:
        raise UsageError(f"the package {package} is not installed; install it beside bt-bench")
    return Path(spec.origin).parent.joinpath(*inner)


def info_of(suite: Suite) -> SuiteInfo:
    """Return the facts about a suite that results keep."""
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
