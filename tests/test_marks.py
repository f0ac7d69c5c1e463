"""Find tests that time a GPU and lack the mark `alone`: beside other tests they are refused.

Times that are taken by a helper in another file are not seen here, but on a GPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# What takes times on a GPU: functions of bt-bench and torch, and commands as typed.
FUNCTIONS = ("measure_case", "calibrate", "bench", "elapsed_time", "run_sweep", "run_live_gate")
COMMANDS = ("sweep", "gate", "calibrate", "overhead", "profile", "selfcheck")
TIMING = {*FUNCTIONS, "bt_bench.sweep", *map(repr, COMMANDS)}


def definitions(tree: ast.Module) -> dict[str, ast.AST]:
    """Return the functions and values of a module, by name."""
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found |= {ast.unparse(target): node.value for target in node.targets}
    return found


def reached(node: ast.AST, known: Mapping[str, ast.AST], seen: set[str]) -> Iterator[ast.AST]:
    """Yield the nodes of code, and of what it names in its module, fixtures too."""
    for each in ast.walk(node):
        yield each
        name = getattr(each, "id", None) or getattr(each, "arg", None)
        if name in known and name not in seen:
            seen.add(name)
            yield from reached(known[name], known, seen)


def marks(node: ast.AST, known: Mapping[str, ast.AST]) -> set[str]:
    """Return the marks that an expression names: `gpu` of `pytest.mark.gpu`."""
    return {
        each.attr
        for each in reached(node, known, set())
        if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "pytest.mark"
    }


def used(node: ast.AST, known: Mapping[str, ast.AST]) -> set[str]:
    """Return what code calls, and its constants."""
    found = set()
    for each in reached(node, known, set()):
        if isinstance(each, ast.Constant):
            found.add(repr(each.value))
        elif isinstance(each, ast.Call):
            name = ast.unparse(each.func)
            found |= {name, name.rpartition(".")[2]}
    return found


def timing_beside_others(text: str) -> Iterator[str]:
    """Yield the tests of a file that time a GPU and lack the mark."""
    known = definitions(ast.parse(text))
    of_all = marks(known["pytestmark"], known) if "pytestmark" in known else set()
    for name, node in known.items():
        if isinstance(node, ast.FunctionDef) and name.startswith("test"):
            have = of_all.union(*(marks(each, known) for each in node.decorator_list))
            if "gpu" in have and "alone" not in have and used(node, known) & TIMING:
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
        "    pool.submit(helper)\n",
        "    run(*WORDS)\n",
        "    bt_bench.sweep('quick')\n",
    ],
)
@pytest.mark.parametrize(
    "mark",
    [
        "pytestmark = pytest.mark.gpu\n",
        "@pytest.mark.gpu\n",
        "BOTH = [1, pytest.param(2, marks=pytest.mark.gpu)]\n@pytest.mark.parametrize('n', BOTH)\n",
    ],
)
def test_a_test_without_the_mark_is_found(mark: str, body: str) -> None:
    known = "WORDS = ['gate', '--static']\ndef helper():\n    start.elapsed_time(end)\n"
    text = f"{known}{mark}def test_it():\n{body}"
    assert [*timing_beside_others(text)] == ["test_it"]
    text = text.replace("def test_it", "@pytest.mark.alone\ndef test_it")
    assert [*timing_beside_others(text)] == []


def test_so_is_one_by_a_fixture() -> None:
    text = "@pytest.fixture\ndef timed():\n    return measure_case()\n"
    text += "@pytest.mark.gpu\ndef test_it(timed):\n    assert timed\n"
    assert [*timing_beside_others(text)] == ["test_it"]
