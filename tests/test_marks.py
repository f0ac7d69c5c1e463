"""What times a GPU says so by the mark `alone`: beside other tests it would be refused."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# What takes times on a GPU: functions of bt-bench and torch, and commands as typed.
FUNCTIONS = ("measure_case", "calibrate", "bench", "elapsed_time", "run_sweep", "run_live_gate")
COMMANDS = ("sweep", "gate", "calibrate", "overhead", "profile", "selfcheck")
TIMING = {*FUNCTIONS, *map(repr, COMMANDS)}


def marks(node: ast.AST) -> set[str]:
    """The marks that an expression names: `gpu` of `pytest.mark.gpu`."""
    found = ast.walk(node)
    return {
        each.attr
        for each in found
        if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "pytest.mark"
    }


def marks_of_module(tree: ast.Module) -> set[str]:
    given = (node for node in tree.body if isinstance(node, ast.Assign))
    return {
        mark
        for node in given
        if any(ast.unparse(target) == "pytestmark" for target in node.targets)
        for mark in marks(node.value)
    }


def used(node: ast.AST, functions: Mapping[str, ast.AST], seen: set[str]) -> set[str]:
    """What code calls, and its constants; with those of the module's functions that it calls."""
    nodes = [*ast.walk(node)]
    found = {repr(each.value) for each in nodes if isinstance(each, ast.Constant)}
    called = (each.func for each in nodes if isinstance(each, ast.Call))
    found |= {ast.unparse(function).rpartition(".")[2] for function in called}
    for name in (found & functions.keys()) - seen:
        seen.add(name)
        found |= used(functions[name], functions, seen)
    return found


def timing_beside_others(text: str) -> Iterator[str]:
    """Yield the tests of a file that time a GPU and lack the mark."""
    tree = ast.parse(text)
    all_have = marks_of_module(tree)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name, node in functions.items():
        have = all_have.union(*map(marks, node.decorator_list))
        beside_others = name.startswith("test") and "gpu" in have and "alone" not in have
        if beside_others and used(node, functions, set()) & TIMING:
            yield name


def test_what_times_a_gpu_is_alone() -> None:
    files = [path for path in TESTS.rglob("test_*.py") if "pytest.mark.gpu" in path.read_text()]
    assert len(files) > 20
    assert {p.name: found for p in files if (found := [*timing_beside_others(p.read_text())])} == {}


@pytest.mark.parametrize(
    "body",
    [
        "    outcome = run_apart('sweep', config)\n",
        "    words = ['gate', '--static']\n    run(*words)\n",
        "    bt_bench.bench({'a': f})\n",
        "    helper()\n",
    ],
)
@pytest.mark.parametrize("mark", ["pytestmark = pytest.mark.gpu\n", "@pytest.mark.gpu\n"])
def test_a_test_without_the_mark_is_found(mark: str, body: str) -> None:
    text = f"def helper():\n    start.elapsed_time(end)\n\n\n{mark}def test_it():\n{body}"
    assert [*timing_beside_others(text)] == ["test_it"]
    text = text.replace("def test_it", "@pytest.mark.alone\ndef test_it")
    assert [*timing_beside_others(text)] == []
