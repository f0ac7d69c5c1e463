"""Places in users' files where exceptions were raised, and the causes that Triton has wrapped."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bt_bench.protocol import is_regular, loaded_suites
from bt_bench.variants import TOOL, installed_places, text_of

LONGEST_SOURCE = 80  # characters of a source line that are shown
ONLY_INTERPRETED = "Triton's interpreter cannot run this line, a GPU may"


@dataclass(frozen=True)
class SourceLine:
    """A line of a file.

    Args:
        path: the file.
        line: the line's number, from 1.
        function: the function that contains the line; kernels are functions too.
    """

    path: Path
    line: int
    function: str

    @property
    def source(self) -> str:
        """Return the line's text, stripped, and cut if it is long; empty if there is no file."""
        source = linecache.getline(str(self.path), self.line).strip()
        return source if len(source) <= LONGEST_SOURCE else source[: LONGEST_SOURCE - 1] + "…"

    def __str__(self) -> str:
        function = "" if self.function.startswith("<") else f", in {self.function}"
        source = f": `{self.source}`" if self.source else ""
        return f"{self.path.name}:{self.line}{function}{source}"


def cause_of(error: BaseException) -> BaseException:
    """Return the exception that a user's code raised, without Triton's wrapping errors."""
    while _is_of_triton(error, "InterpreterError", "CompilationError") and error.__cause__:
        error = error.__cause__
    return error


def summary_of(error: BaseException) -> str:
    """Return an exception's type and the first line of its message, without Triton's wrapping.

    If only Triton's interpreter rejects a line of a kernel, the summary begins with that.
    """
    if is_of_interpreter(error):
        return f"{ONLY_INTERPRETED}: {_summary_of(cause_of(error))}"
    return _summary_of(cause_of(error))


def is_of_interpreter(error: BaseException) -> bool:
    """Return whether Triton's interpreter lacks a feature that a kernel uses; a GPU may have it.

    Other errors of the interpreter, such as for mismatched shapes, may be the compiler's too.
    """
    if not _is_of_triton(error, "InterpreterError"):
        return False
    cause = cause_of(error)
    frames = [*traceback.walk_tb(cause.__traceback__)]
    if not frames or not frames[-1][0].f_globals.get("__name__", "").startswith("triton."):
        return False
    match cause:
        case NotImplementedError():
            return True
        case AttributeError():
            return "InterpreterBuilder" in text_of(cause)
        case ValueError():
            # A function of the language that the interpreter lacks, such as those in `tl.extra`.
            return "`_semantic` argument" in text_of(cause)
    return False


def _summary_of(error: BaseException) -> str:
    text = first_line(error)
    if _is_of_triton(error, "CompilationError"):
        # The full text begins with a place in the kernel, which `place_of` reports better.
        text = (getattr(error, "error_message", None) or text).partition("\n")[0]
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def place_of(error: BaseException) -> SourceLine | None:
    """Return the innermost line of a user's code that an exception has passed through.

    A kernel's own lines are found even if it is interpreted or does not compile. A line of the
    suite's package of kernels is returned only if there is none of a variant; a line of any other
    code, such as bt-bench's or torch's, only if there is neither.

    Args:
        error: the exception as it was caught.

    Returns:
        The line; `None` if the exception has no traceback.
    """
    places = list(_places(error))
    return max(places, key=lambda place: _rank(place.path), default=None)


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message."""
    return (text_of(error).splitlines() or [""])[0]


def _places(error: BaseException) -> Iterator[SourceLine]:
    """Yield the lines that an exception has passed through, the innermost first."""
    chain = [error]
    while chain[-1] is not cause_of(error):
        assert chain[-1].__cause__ is not None
        chain.append(chain[-1].__cause__)
    frames = [frame for one in chain for frame in traceback.walk_tb(one.__traceback__)]
    places = [SourceLine(Path(f.f_code.co_filename), line, f.f_code.co_name) for f, line in frames]
    files = dict.fromkeys(place.path for place in reversed(places))
    for one in reversed(chain):
        if _is_of_triton(one, "CompilationError"):
            known = dict.fromkeys([*files, *_packages_of(files)])
            yield from filter(None, (_compiled(one, path) for path in known))
    yield from reversed(places)


def _compiled(error: BaseException, path: Path) -> SourceLine | None:
    """Return the line of a kernel that does not compile, if the kernel is in this file.

    Triton's exception has no frame of the kernel; it has the kernel's source and a line number.
    """
    source = getattr(error, "src", None)
    line = getattr(getattr(error, "node", None), "lineno", None)
    if not source or line is None:
        return None
    before, found, _ = "".join(linecache.getlines(str(path))).partition(source)
    name = source.partition("(")[0].removeprefix("def").strip()
    return SourceLine(path, before.count("\n") + line, name) if found else None


def _packages_of(files: Iterable[Path]) -> Iterator[Path]:
    """Yield all files of the packages of kernels: a kernel may be launched from another file."""
    roots = {
        Path(*file.parts[: file.parts.index(suite.package) + 1])
        for suite in loaded_suites()
        for file in files
        if suite.package in file.parts
    }
    for root in sorted(roots):
        yield from sorted(filter(is_regular, root.rglob("*.py")))


def _rank(path: Path) -> int:
    if str(path).startswith("<"):  # no file
        return 0
    if any(suite.package in path.parts for suite in loaded_suites()):
        return 2
    resolved = path.resolve()
    return 1 if any(map(resolved.is_relative_to, _not_of_users())) else 3


@cache
def _not_of_users() -> tuple[Path, ...]:
    return (TOOL, *installed_places())


def _is_of_triton(error: BaseException, *names: str) -> bool:
    """Return whether an exception is of one of Triton's types, without importing Triton."""
    return any(
        kind.__name__ in names and kind.__module__.startswith("triton.")
        for kind in type(error).__mro__
    )
