"""The packages that only some commands need, and the extra of bt-bench that installs them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from bt_bench.base.errors import UsageError, listed

Parameters = ParamSpec("Parameters")
ResultT = TypeVar("ResultT")

RUN_PACKAGES = {"torch": "torch", "triton": "Triton", "bt_kernels": "bt-kernels", "nvtx": "nvtx"}
"""The names of packages, by modules, that the extra `run` installs and all measurements need."""


def missing_packages() -> list[str]:
    """Return the names of the packages of `RUN_PACKAGES` that are not installed."""
    return [name for module, name in RUN_PACKAGES.items() if not _is_installed(module)]


def needs_packages(command: str, names: list[str]) -> UsageError:
    """Return the error of a command that needs packages which are not installed."""
    verb = "is" if len(names) == 1 else "are"
    return UsageError(
        f"{command} needs {listed(names)}, which {verb} not installed; "
        "pip install 'bt-bench[run]' adds all that measurements need"
    )


def needing_run(command: Callable[Parameters, ResultT]) -> Callable[Parameters, ResultT]:
    """Wrap a command to be refused, before it does anything, if a package it needs is missing."""

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> ResultT:
        names = missing_packages()
        if names:
            raise needs_packages(command.__name__, names)
        return command(*args, **kwargs)

    return run


def needing_imports(
    command: Callable[Parameters, ResultT],
) -> Callable[Parameters, ResultT]:
    """Wrap a command to be refused if it comes to import a package that is missing."""

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> ResultT:
        try:
            return command(*args, **kwargs)
        except ModuleNotFoundError as error:
            name = RUN_PACKAGES.get((error.name or "").partition(".")[0])
            if name is None or name not in missing_packages():
                raise
            raise needs_packages(command.__name__.rstrip("_"), [name]) from error

    return run


def refuse_packed(folder: Path) -> None:
    """Refuse a folder of bt-bench that lies inside an archive, where its files cannot be read.

    Python imports modules from a wheel or zip file on `sys.path`, which is enough to read results.

    Raises:
        UsageError: naming the archive.
    """
    for place in folder.parents:
        if place.is_file():
            raise UsageError(
                f"{folder} cannot be read: {place} is an archive; install what it holds with pip, "
                "or unpack it"
            )


def _is_installed(module: str) -> bool:
    """Return whether a module can be found, here or in a worker, without importing it."""
    try:
        # Not `importlib.util.find_spec`, which looks at this process's modules first.
        return any(
            finder.find_spec(module, None)
            for finder in sys.meta_path
            if hasattr(finder, "find_spec")
        )
    except ImportError:  # a finder blocks it
        return False
