"""Coverage of a variant's own code, by lines and branches.

Code that no scenario reaches is not checked. Lines of functions count, including kernels under
Triton's interpreter. Kernels compiled for a GPU and code in C are not seen.
"""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from bt_bench.base.python_files import python_text
from bt_bench.worker.tasks.plays import BranchWay, Coverage, FileCoverage, OneSided, Unreached

_EXCUSE = re.compile(r"#\s*unreached:\s*(\S.*)")
_Trace = Callable[[FrameType, str, Any], Any]


def _trace(ran: FileCoverage, loops: Mapping[int, int]) -> _Trace:
    """Return a trace function that records the lines of one call.

    Args:
        ran: receives them.
        loops: first line of each loop's body in the file, by the line of its head.
    """
    before = 0
    running: dict[int, int] = {}  # turns so far, by the heads of loops under way
    turns, add_line, add_pair = ran.turns, ran.lines.add, ran.pairs.add

    def note(frame: FrameType, event: str, _argument: Any) -> _Trace:
        nonlocal before
        if event == "line":
            line = frame.f_lineno
            add_line(line)
        elif event == "return":
            line = 0
            # Loops that the call leaves from inside.
            turns.update((head, min(count, 2)) for head, count in running.items())
        else:
            return note
        add_pair((before, line))
        if before in loops:
            if line == loops[before]:
                running[before] = running.get(before, 0) + 1
            elif line != before:
                turns.add((before, min(running.pop(before, 0), 2)))
        before = line
        return note

    return note


@dataclass
class Reached:
    """The lines of some files that ran, and the ways that branches went.

    Args:
        files: the files whose lines count, named as in `co_filename`.
        ran: lines and branches that ran, by file.
    """

    files: frozenset[str]
    ran: dict[str, FileCoverage] = field(default_factory=dict)
    _loops: dict[str, Mapping[int, int]] = field(default_factory=dict)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Record the lines that run in the `with` block, also in threads that start in it."""
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
        if name not in self._loops:
            text = python_text(Path(name))
            self._loops[name] = {each.head: each.body for each in branches_in(text) if each.is_loop}
        ran = self.ran.setdefault(name, FileCoverage())
        ran.lines.add(frame.f_lineno)
        return _trace(ran, self._loops[name])

    def add(self, elsewhere: Mapping[str, FileCoverage]) -> None:
        """Add the lines and branches of the same files that ran in another process."""
        for name, ran in elsewhere.items():
            self.ran.setdefault(name, FileCoverage()).add(ran)

    def coverage(self, files: Iterable[str] | None = None) -> Coverage:
        """Return the coverage.

        Args:
            files: the files to report on; `None`: all.
        """
        reached = total = both = branches = 0
        missing: list[Unreached] = []
        one_sided: list[OneSided] = []
        for name in sorted(self.files if files is None else files):
            text = python_text(Path(name))
            known = lines_of_functions(text, name)
            ran = self.ran.get(name, FileCoverage())
            total += len(known)
            reached += len(ran.lines & set(known))
            excuses = excuses_in(text)
            missing += _ranges(name, known, ran.lines, excuses)
            for branch in branches_in(text):
                if branch.head not in known:
                    continue
                branches += 1
                ways = branch.ways(ran)
                excuse = excuses.get(branch.head) or excuses.get(branch.body) or ""
                if len(ways) == 2 or excuse:
                    both += 1
                elif ways:
                    (lacking,) = {*branch.possible} - ways
                    where = name, branch.head, known[branch.head]
                    one_sided.append(OneSided(*where, lacking, excuse))
        return Coverage(reached, total, tuple(missing), both, branches, tuple(one_sided))


@dataclass(frozen=True)
class Branch:
    """An `if` or a loop of a function.

    Args:
        head: its first line.
        last: the last line of its test, or of the iterable of a `for`.
        body: the first line of its body.
        is_loop: whether it is a loop.
    """

    head: int
    last: int
    body: int
    is_loop: bool

    @property
    def possible(self) -> tuple[BranchWay, BranchWay]:
        """Return the two ways that it may go."""
        return (
            (BranchWay.FEW, BranchWay.MANY) if self.is_loop else (BranchWay.TRUE, BranchWay.FALSE)
        )

    def ways(self, ran: FileCoverage) -> set[BranchWay]:
        """Return the ways that it went."""
        if self.is_loop:
            counts = {count for head, count in ran.turns if head == self.head}
            return {BranchWay.MANY if count > 1 else BranchWay.FEW for count in counts}
        test = range(self.head, self.last + 1)
        after = {line for before, line in ran.pairs if before in test and line not in test}
        return {BranchWay.TRUE if line == self.body else BranchWay.FALSE for line in after}


def branches_in(text: str) -> list[Branch]:
    """Return the branches of a file whose bodies begin on lines of their own.

    Line events cannot show the way of any other. An `if` or `while` on a constant is no branch.
    """
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.For):
            last = node.iter.end_lineno or node.lineno
        elif isinstance(node, ast.If | ast.While):
            if isinstance(node.test, ast.Constant):
                continue
            last = node.test.end_lineno or node.lineno
        else:
            continue
        body = node.body[0].lineno
        if body > last:
            found.append(Branch(node.lineno, last, body, not isinstance(node, ast.If)))
    return sorted(found, key=lambda one: one.head)


def lines_of_functions(text: str, name: str) -> dict[int, str]:
    """Return the lines in bodies of functions, each with the name of its function."""
    found: dict[int, str] = {}

    def walk(code: CodeType, inside: bool) -> None:
        if inside:
            first = code.co_firstlineno
            for _, _, line in code.co_lines():
                if line is not None and line > first:
                    found.setdefault(line, code.co_qualname)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                # Like a module, a class runs its body on import.
                walk(constant, inside=not _is_class_body(constant))

    walk(compile(text, name, "exec"), inside=False)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # The lines from its first decorator up to before its first statement.
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            for line in range(first, node.body[0].lineno):
                found.pop(line, None)
    return found


def _is_class_body(code: CodeType) -> bool:
    return "__qualname__" in code.co_names and "__module__" in code.co_names


def excuses_in(text: str) -> dict[int, str]:
    """Return the lines that `# unreached: REASON` excuses, each with its reason.

    A mark excuses its own line, and the block or statement that begins there.
    """
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
    """Return ranges of neighbouring lines that did not run."""
    kinds = groupby(sorted(known), lambda line: (line in run, known[line], excuses.get(line, "")))
    ranges = [(kind, list(lines)) for kind, lines in kinds]
    return [
        Unreached(name, lines[0], lines[-1], function, excuse)
        for (ran, function, excuse), lines in ranges
        if not ran
    ]
