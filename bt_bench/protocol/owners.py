"""Owners of code: the suite of an object, its files and lines, and its errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bt_bench.base.errors import BtBenchError, UsageError
from bt_bench.protocol.refs import definition_of, folder_at, place_in, ref_of_value, suite_at

if TYPE_CHECKING:
    from bt_bench.protocol.suite import Suite


def suite_of(value: object) -> Suite:
    """Return the suite that an object, such as a workload, belongs to."""
    suite: Suite = suite_at(ref_of_value(value))
    return suite


def folder_of(suite: Suite) -> Path:
    """Return the folder of a suite."""
    return folder_at(ref_of_value(suite))


def place_of(suite: Suite) -> Path:
    """Return the file that defines a suite, for messages."""
    return definition_of(ref_of_value(suite))


def line_of(suite: Suite, *parts: Callable[..., Any]) -> str:
    """Return file and line of a part of a suite's code, for messages.

    Args:
        suite: the suite.
        parts: functions or classes; the first one in the suite's own folder counts.
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
    """Turn any exception of a user's suite in the block into an error of the user's.

    Args:
        suite: the suite; exceptions of one that comes with bt-bench are defects, and stay.
        what: the running code, such as `build`.

    Raises:
        UsageError: in place of any exception but bt-bench's own, naming file and line.
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
            f"{place_in(ref.folder, error)}: {what} of suite {suite.name!r} failed: "
            f"{type(error).__name__}: {error}"
        ) from error
