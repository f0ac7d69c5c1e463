"""Where in a user's file an exception was raised, and by what, whatever Triton wraps it in."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bt_bench.protocol import loaded_suites
from bt_bench.variants import TOOL, installed_places, text_of

LONGEST_SOURCE = 80  # characters of a source line that are shown
ONLY_INTERPRETED = "Triton's interpreter cannot run this line, a GPU may"


@dataclass(frozen=True)
class Place:
    """A line of a file.

    Args:
        path: the file.
        line: counts from 1.
        function: that the line is in; kernels are functions too.
    """

    path: Path
    line: int
    function: str

    @property
    def source(self) -> str:
        """The line as it is in the file, cut if it is long; empty if there is no such file."""
        source = linecache.getline(str(self.path), self.line).strip()
        return source if len(source) <= LONGEST_SOURCE else source[: LONGEST_SOURCE - 1] + "…"

    def __str__(self) -> str:
        function = "" if self.function.startswith("<") else f", in {self.function}"
        source = f": `{self.source}`" if self.source else ""
        return f"{self.path.name}:{self.line}{function}{source}"


def cause_of(error: BaseException) -> BaseException:
    """What a user's code raised, without the errors of Triton that it is wrapped in."""
    while _is_of_triton(error, "InterpreterError", "CompilationError") and error.__cause__:
        error = error.__cause__
    return error


def summary_of(error: BaseException) -> str:
    """The type of an exception and the first line of what it says, without Triton's wrapping.

    It begins with whose fault it is where only Triton's interpreter rejects a line of a kernel.
    """
    if is_of_interpreter(error):
        return f"{ONLY_INTERPRETED}: {_summary_of(cause_of(error))}"
    return _summary_of(cause_of(error))


def is_of_interpreter(error: BaseException) -> bool:
    """Tell whether Triton's interpreter lacks something that a kernel uses; a GPU may have it.

    Other errors that the interpreter raises, such as for shapes that do not fit, may be the
    compiler's too.
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
            # Functions of the language that the interpreter does not know, as in tl.extra.
            return "`_semantic` argument" in text_of(cause)
    return False


def _summary_of(error: BaseException) -> str:
    text = first_line(error)
    if _is_of_triton(error, "CompilationError"):
        # It begins with where in the kernel, which `place_of` knows better.
        text = (getattr(error, "error_message", None) or text).partition("\n")[0]
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def place_of(error: BaseException) -> Place | None:
    """The innermost line of a user's code that an exception has passed.

    Kernels come with their own lines, also if they are interpreted or do not compile. The suite's
    package of kernels counts only where there is no code of a variant, and any other code, such as
    bt-bench's or torch's, only where there is neither.

    Args:
        error: as it was caught.

    Returns:
        `None` if it has not been raised.
    """
    places = list(_places(error))
    return max(places, key=lambda place: _rank(place.path), default=None)


def first_line(error: BaseException) -> str:
    """The first line of what an exception says."""
    return (text_of(error).splitlines() or [""])[0]


def _places(error: BaseException) -> Iterator[Place]:
    """The lines that an exception has passed, the innermost first."""
    chain = [error]
    while chain[-1] is not cause_of(error):
        assert chain[-1].__cause__ is not None
        chain.append(chain[-1].__cause__)
    frames = [frame for one in chain for frame in traceback.walk_tb(one.__traceback__)]
    places = [Place(Path(f.f_code.co_filename), line, f.f_code.co_name) for f, line in frames]
    files = dict.fromkeys(place.path for place in reversed(places))
    for one in reversed(chain):
        if _is_of_triton(one, "CompilationError"):
            known = dict.fromkeys([*files, *_packages_of(files)])
            yield from filter(None, (_compiled(one, path) for path in known))
    yield from reversed(places)


def _compiled(error: BaseException, path: Path) -> Place | None:
    """The line of a kernel that does not compile, if the kernel is in a file.

    Triton keeps no frames of its compiler in what it raises, but the text of the kernel.
    """
    source, line = (
        getattr(error, "src", None),
        getattr(getattr(error, "node", None), "lineno", None),
    )
    if not source or line is None:
        return None
    before, found, _ = "".join(linecache.getlines(str(path))).partition(source)
    name = source.partition("(")[0].removeprefix("def").strip()
    return Place(path, before.count("\n") + line, name) if found else None


def _packages_of(files: Iterable[Path]) -> Iterator[Path]:
    """All files of the packages of kernels: what launches a kernel may be in another one."""
    roots = {
        Path(*file.parts[: file.parts.index(suite.package) + 1])
        for suite in loaded_suites()
        for file in files
        if suite.package in file.parts
    }
    for root in sorted(roots):
        yield from sorted(root.rglob("*.py"))


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
    """Whether an exception is of one of Triton's types; Triton need not be loaded for that."""
    return any(
        kind.__name__ in names and kind.__module__.startswith("triton.")
        for kind in type(error).__mro__
    )
