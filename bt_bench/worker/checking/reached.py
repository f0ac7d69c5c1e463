"""Which lines of a variant's own code were run: what no scenario reaches, nobody has checked.

Lines of functions count, kernels under Triton's interpreter too. What is compiled for a GPU, or
written in C, is not seen.
"""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from bt_bench.worker.plays import Coverage, Unreached

_EXCUSE = re.compile(r"#\s*unreached:\s*(\S.*)")
_Trace = Callable[[FrameType, str, Any], Any]


@dataclass
class Reached:
    """The lines of some files that were run.

    Args:
        files: whose lines count, as code names them.
    """

    files: frozenset[str]
    lines: dict[str, set[int]] = field(default_factory=dict)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Notes the lines that run in the `with` block, in all threads that start in it."""
        before, before_in_threads = sys.gettrace(), threading.gettrace()
        sys.settrace(self._call)
        threading.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(before_in_threads)

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> _Trace | None:
        name = frame.f_code.co_filename
        if name not in self.files:
            return None
        lines = self.lines.setdefault(name, set())

        def note(frame: FrameType, event: str, _argument: Any) -> _Trace:
            if event == "line":
                lines.add(frame.f_lineno)
            return note

        lines.add(frame.f_lineno)
        return note

    def coverage(self, files: Iterable[str] | None = None) -> Coverage:
        """What was reached and what was not.

        Args:
            files: those to report on; `None`: all.
        """
        reached = total = 0
        missing: list[Unreached] = []
        for name in sorted(self.files if files is None else files):
            text = Path(name).read_text(encoding="utf-8")
            known = lines_of_functions(text, name)
            run = self.lines.get(name, set())
            total += len(known)
            reached += len(run & set(known))
            excuses = excuses_in(text)
            missing += _ranges(name, known, run, excuses)
        return Coverage(reached, total, tuple(missing))


def lines_of_functions(text: str, name: str) -> dict[int, str]:
    """The lines of a file that belong to functions, with the function each belongs to."""
    found: dict[int, str] = {}

    def walk(code: CodeType, inside: bool) -> None:
        if inside:
            first = code.co_firstlineno
            for _, _, line in code.co_lines():
                if line is not None and line > first:
                    found.setdefault(line, code.co_qualname if _HAS_QUALNAME else code.co_name)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                # The body of a class runs when it is imported, as that of a module.
                walk(constant, inside=not _is_class_body(constant))

    walk(compile(text, name, "exec"), inside=False)
    for line in _of_definitions(text):
        found.pop(line, None)
    return found


_HAS_QUALNAME = sys.version_info >= (3, 11)


def _is_class_body(code: CodeType) -> bool:
    return "__qualname__" in code.co_names and "__module__" in code.co_names


def _of_definitions(text: str) -> set[int]:
    """Lines from the first decorator of a function to the line before its first statement."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            found |= set(range(first, node.body[0].lineno))
    return found


def excuses_in(text: str) -> dict[int, str]:
    """Lines that `# unreached: REASON` excuses: its own, and the block that begins there."""
    marks = {
        number: match.group(1).strip()
        for number, line in enumerate(text.splitlines(), 1)
        if (match := _EXCUSE.search(line))
    }
    found = dict(marks)
    for node in ast.walk(ast.parse(text)):
        line = getattr(node, "lineno", None)
        if line in marks and isinstance(node, ast.stmt):
            end = node.end_lineno or line
            if isinstance(node, (ast.If, ast.For, ast.While)) and node.orelse:
                end = node.orelse[0].lineno - 1
            found |= dict.fromkeys(range(line, end + 1), marks[line])
    return found


def _ranges(
    name: str, known: Mapping[int, str], run: set[int], excuses: Mapping[int, str]
) -> list[Unreached]:
    """Neighbouring lines that were not run, as ranges."""
    found: list[Unreached] = []
    before_was_missing = False
    for line in sorted(known):
        missing = line not in run
        if missing:
            last = found[-1] if found and before_was_missing else None
            excuse = excuses.get(line, "")
            if last is not None and (last.function, last.excuse) == (known[line], excuse):
                found[-1] = Unreached(name, last.first, line, known[line], excuse)
            else:
                found.append(Unreached(name, line, line, known[line], excuse))
        before_was_missing = missing
    return found
