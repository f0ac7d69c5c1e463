"""README, help, messages, reports and docstrings read as one would say it.

Most sentences with one of these turns of phrase have to be read twice.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from support.commands import run

from bt_bench.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
# How often each may occur in a thousand words. "What" may ask a question.
MOST = {
    r"\bwhat\b(?![^.?]*\?)": 0.5,
    r"\bso that\b": 0.1,
    r"\b(?:of|by) which\b": 0.15,
    r"\b(?:that|those) of\b": 0.15,
    r"\b(?:says?|tells?|told|hears?)\b": 0.1,
}


def too_many(text: str) -> dict[str, tuple[int, list[str]]]:
    """Return the turns of phrase that occur too often: how often, and a few places."""
    plain = re.sub(r"\]\([^)]*\)|`[^`]*`|https?://\S+", " ", text)
    words = len(plain.split())
    found = {}
    for pattern, most in MOST.items():
        places = [plain[max(0, m.start() - 50) : m.end() + 30] for m in re.finditer(pattern, plain)]
        if len(places) * 1000 > most * words:
            found[pattern] = (words, places)
    return found


def messages(path: Path) -> Iterator[str]:
    """Yield the texts of three words or more in a source, which are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                inside.add(id(statement.value))
        if isinstance(node, ast.JoinedStr):
            inside.update(id(part) for part in ast.walk(node) if part is not node)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                part.value if isinstance(part, ast.Constant) else "X" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if id(node) not in inside and len(text.split()) > 2:
            yield text


def commands(group: typer.core.TyperGroup, *path: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, typer.core.TyperGroup):
            yield from commands(command, *path, name)


def test_a_text_that_betrays_itself_is_found():
    assert too_many("It prints what it found, so that those of the base are told. " * 2).keys() == {
        *(pattern for pattern in MOST if "which" not in pattern)
    }
    assert not too_many("What is this? See `what` and [that](what-of-which.md). " + "word " * 99)


def test_messages():
    sources = sorted((ROOT / "bt_bench").rglob("*.py"))
    text = "\n".join(message for path in sources for message in messages(path))
    assert len(text.split()) > 10_000
    assert not too_many(text)


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("package", ["bt_bench", "kernels"])
def test_docstrings(package):
    sources = sorted((ROOT / package).rglob("*.py"))
    text = "\n".join(text for path in sources for text in docstrings(path))
    assert len(text.split()) > 8_000
    assert not too_many(text)


def test_help():
    group = typer.main.get_command(app)
    names = [(), *commands(group)]
    text = "\n".join(run(*name, "--help").out for name in names)
    assert len(text.split()) > 3_000
    assert not too_many(text)


@pytest.mark.parametrize(
    "paths",
    [
        ["README.md"],
        [
            *(ROOT / "tests/report").rglob("golden/*_run.md"),
            *(ROOT / "tests/report").rglob("rich.txt"),
        ],
    ],
    ids=["README", "reports"],
)
def test_pages(paths):
    text = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in paths)
    assert not too_many(text)
