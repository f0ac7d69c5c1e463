"""Changes of a release's files, and the patch that makes them in a user's own copy.

Nothing of the release is stored here: an edit names a definition and a statement in it, and has the
lines that are added. Digests of definitions tell whether a copy is the release's.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bt_bench.base.errors import UsageError

Definition = ast.FunctionDef | ast.ClassDef
Lines = tuple[int, int]
"""The first line that is replaced, counted from 0, and the line after the last one."""

DIGITS = 16
"""Hexadecimal digits of a digest."""


@dataclass(frozen=True)
class Edit:
    """Lines for a file.

    Args:
        definition: qualified name of a function or class, such as `Sampler.add_request`.
        place: finds the lines in the definition that `text` replaces, none for an insertion.
            It raises `LookupError` with the name of a statement that is missing.
        text: whole lines.
    """

    definition: str
    place: Callable[[Definition], Lines]
    text: str


@dataclass(frozen=True)
class Change:
    """Edits of a file.

    Args:
        file: its path, below the folder that holds `vllm`.
        edits: in order of their places.
        adds: a name that the file has only afterwards; empty without edits.
        digests: definitions that must be the release's, with `digest_of` each.
        is_test: leave it out if there is no such file, as in a wheel.
    """

    file: str
    edits: tuple[Edit, ...] = ()
    adds: str = ""
    digests: dict[str, str] = field(default_factory=dict)
    is_test: bool = False


@dataclass(frozen=True)
class Patch:
    """A change that can be proposed.

    Args:
        name: its name in that of the file.
        subject: one line.
        description: what it does, and why it is right.
        measured: figures, or how to get them.
        tested: how it was tested.
        changes: the files.
    """

    name: str
    subject: str
    description: str
    measured: str
    tested: str
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class FileDiff:
    """The difference of a file.

    Args:
        file: its path below the folder that holds `vllm`.
        added, removed: numbers of lines.
        is_test: it is a test file.
        text: the difference, as git writes it.
    """

    file: str
    added: int
    removed: int
    is_test: bool
    text: str


@dataclass(frozen=True)
class MadePatch:
    """A patch for one copy of a release.

    Args:
        patch: the change.
        files: its files.
        left_out: test files that the copy does not have.
    """

    patch: Patch
    files: tuple[FileDiff, ...]
    left_out: tuple[str, ...]

    @property
    def added(self) -> int:
        """Return the number of lines that it adds, tests included."""
        return sum(file.added for file in self.files)

    @property
    def added_to_tests(self) -> int:
        """Return the number of lines that it adds to test files."""
        return sum(file.added for file in self.files if file.is_test)

    @property
    def removed(self) -> int:
        """Return the number of lines that it removes."""
        return sum(file.removed for file in self.files)


def make_patch(patch: Patch, root: Path, release: str) -> MadePatch:
    """Make a patch for a copy of a release.

    Args:
        patch: the change.
        root: the folder that holds `vllm`.
        release: the release, for messages: `vLLM 0.33.0`.

    Raises:
        UsageError: if a file or definition is missing, is not the release's, or is patched already.
    """
    files, left_out = [], []
    for change in patch.changes:
        if change.is_test and not (root / change.file).exists():
            left_out.append(change.file)
            continue
        before = _read(root, change.file, release)
        after = _changed(before, change, release)
        if change.edits:
            files.append(_difference(change, before, after))
    return MadePatch(patch, tuple(files), tuple(left_out))


def digest_of(text: str, definition: Definition) -> str:
    """Return the digest of a definition's lines, decorators included; line ends do not count."""
    first = min(node.lineno for node in (definition, *definition.decorator_list))
    lines = [line.rstrip() for line in text.splitlines()[first - 1 : definition.end_lineno]]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:DIGITS]


def definitions(text: str) -> dict[str, Definition]:
    """Return the functions, classes and methods of a file by qualified name.

    Raises:
        SyntaxError: if it is not Python.
    """
    return dict(_below(ast.parse(text).body, ""))


def _below(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Definition]]:
    for node in body:
        if isinstance(node, Definition):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _below(node.body, f"{prefix}{node.name}.")


# Places


def after(definition: Definition) -> Lines:
    """Locate the line after a definition, or after the last statement of a function."""
    assert definition.end_lineno is not None  # `ast.parse` sets it
    return definition.end_lineno, definition.end_lineno


def at_start(definition: Definition) -> Lines:
    """Locate the first statement of a function, behind its docstring."""
    has_docstring = ast.get_docstring(definition, clean=False) is not None
    body = definition.body[has_docstring:]
    if not body:
        raise LookupError("a first statement")
    return body[0].lineno - 1, body[0].lineno - 1


def after_binding(name: str) -> Callable[[Definition], Lines]:
    """Return a place: after the statement of a function that binds a name or an attribute."""

    def locate(definition: Definition) -> Lines:
        line = _end_of(_binding(definition, name))
        return line, line

    return locate


def binding(name: str, number: int = 0) -> Callable[[Definition], Lines]:
    """Return a place: a statement that binds a name, at any depth; `number` counts from 0."""

    def locate(definition: Definition) -> Lines:
        inner = (node for node in ast.walk(definition) if isinstance(node, ast.stmt))
        found = sorted((each.lineno - 1, _end_of(each)) for each in inner if _binds(each, name))
        if number < len(found):
            return found[number]
        raise LookupError(f"assignment {number + 1} to {name}")

    return locate


def body_behind(name: str) -> Callable[[Definition], Lines]:
    """Return a place: the body of the `if` that follows the statement that binds a name."""

    def locate(definition: Definition) -> Lines:
        number = definition.body.index(_binding(definition, name)) + 1
        for following in definition.body[number : number + 1]:
            if isinstance(following, ast.If):
                return following.body[0].lineno - 1, _end_of(following.body[-1])
        raise LookupError(f"an if behind the assignment to {name}")

    return locate


def from_binding_to_return(name: str) -> Callable[[Definition], Lines]:
    """Return a place: from the statement of a function that binds a name to its last `return`."""

    def locate(definition: Definition) -> Lines:
        first, last = _binding(definition, name), definition.body[-1]
        if isinstance(last, ast.Return):
            return first.lineno - 1, _end_of(last)
        raise LookupError("a return at its end")

    return locate


def _binding(definition: Definition, name: str) -> ast.stmt:
    for statement in definition.body:
        if _binds(statement, name):
            return statement
    raise LookupError(f"an assignment to {name}")


def _binds(statement: ast.stmt, name: str) -> bool:
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return any(ast.unparse(target) == name for target in targets)


def _end_of(statement: ast.stmt) -> int:
    assert statement.end_lineno is not None
    return statement.end_lineno


# Files


def _read(root: Path, file: str, release: str) -> str:
    path = root / file
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist; expected that file of {release}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: byte {error.start} is not UTF-8; expected the file of {release}"
        ) from None
    if not text.endswith("\n"):
        raise UsageError(f"{path} does not end with a line end; expected the file of {release}")
    return text


def _changed(before: str, change: Change, release: str) -> str:
    """Return a file with its edits, or raise a `UsageError` that names the anchor."""
    try:
        known = definitions(before)
    except (SyntaxError, ValueError) as error:
        raise UsageError(
            f"{change.file}: does not parse: {error}; expected the file of {release}"
        ) from None
    if change.adds and change.adds in before:
        raise UsageError(
            f"{change.file} has {change.adds} already, so it is patched; pass an unpatched copy "
            f"of {release}, or take this patch back with git apply -R"
        )
    for name, digest in change.digests.items():
        found = digest_of(before, _definition(known, name, change.file, release))
        if found != digest:
            raise UsageError(
                f"{change.file}: {name} was changed: its digest is {found}, in {release} {digest}; "
                "pass an unchanged copy, since the patch may be wrong for this one"
            )
    lines = before.splitlines(keepends=True)
    line_end = "\r\n" if lines[0].endswith("\r\n") else "\n"
    for edit in reversed(change.edits):
        definition = _definition(known, edit.definition, change.file, release)
        try:
            first, past_last = edit.place(definition)
        except LookupError as error:
            raise UsageError(
                f"{change.file}: {edit.definition} lacks {error.args[0]}; expected the file of "
                f"{release}"
            ) from None
        lines[first:past_last] = edit.text.replace("\n", line_end).splitlines(keepends=True)
    return "".join(lines)


def _definition(known: dict[str, Definition], name: str, file: str, release: str) -> Definition:
    if name not in known:
        raise UsageError(f"{file} has no {name}; expected the file of {release}")
    return known[name]


def _difference(change: Change, before: str, after: str) -> FileDiff:
    names = f"a/{change.file}", f"b/{change.file}"
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    lines = list(difflib.unified_diff(old, new, *names))
    marks = [line[0] for line in lines[2:]]
    text = f"diff --git {' '.join(names)}\n{''.join(lines)}"
    return FileDiff(change.file, marks.count("+"), marks.count("-"), change.is_test, text)
